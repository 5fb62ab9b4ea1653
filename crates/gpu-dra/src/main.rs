//! The gpu-dra binary.

fn main() -> std::process::ExitCode {
    gpu_dra::main()
}
