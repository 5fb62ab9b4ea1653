# The node agent's image: the program (glibc, since it loads the driver's libnvidia-ml.so.1),
# the static container hook, nothing else. Multi-arch: build with --platform linux/amd64,linux/arm64.
FROM --platform=$BUILDPLATFORM rust:1.95-bookworm AS build
ARG TARGETARCH
WORKDIR /src
COPY . .
RUN case "$TARGETARCH" in \
      arm64) target=aarch64-unknown-linux-gnu; packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross"; \
             export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc ;; \
      *)     target=x86_64-unknown-linux-gnu; packages= ;; \
    esac \
 && if [ -n "$packages" ]; then apt-get update && apt-get install -y --no-install-recommends $packages; fi \
 && rustup target add "$target" \
 && cargo build --release --locked --package gpu-dra --target "$target" \
 && RUSTFLAGS="-C target-feature=+crt-static" \
    cargo build --release --locked --package gpu-dra-hook --target "$target" --target-dir target/static \
 && mkdir -p /out/links \
 && cp "target/$target/release/gpu-dra" "target/static/$target/release/gpu-dra-hook" /out/ \
 && ln -s gpu-dra /out/links/kubectl-gpu

FROM gcr.io/distroless/cc-debian12:latest
COPY --from=build /out/gpu-dra /usr/bin/gpu-dra
COPY --from=build /out/gpu-dra-hook /usr/bin/gpu-dra-hook
# The program by the name that kubectl looks for. Only in a folder a link is copied as one.
COPY --from=build /out/links/ /usr/bin/
ENTRYPOINT ["/usr/bin/gpu-dra"]
