//! A daemon's default limits as commands, and whether its answers say that it took them.
//! Text in, text out.
//!
//! Known of the real program: an accepted percentage is answered by itself (`25.0`), an
//! accepted memory limit by nothing, and whatever is refused by a sentence.

use crate::daemons::DaemonError;
use crate::spec::DaemonSpec;

/// Answered with a number by every daemon that serves; changes nothing.
pub(crate) const PROBE: &str = "get_default_active_thread_percentage";

/// The commands that set the spec's limits; none where it has none. They hold for servers
/// started later, so they come before the first client.
pub(crate) fn commands(spec: &DaemonSpec) -> Vec<String> {
    let percentage = spec.active_thread_percentage();
    let percentage =
        percentage.map(|value| format!("set_default_active_thread_percentage {value}"));
    // By number: the daemon takes a UUID without a word, and was seen to limit nothing then
    // (NVIDIA/k8s-device-plugin#572). It counts the devices as it was given them.
    let memory = spec.devices().iter().enumerate().filter_map(|(number, device)| {
        let limit = spec.memory_limits().get(device)?;
        Some(format!("set_default_device_pinned_mem_limit {number} {limit}"))
    });
    let mut commands: Vec<String> = percentage.into_iter().chain(memory).collect();
    if !commands.is_empty() {
        commands.push(PROBE.to_owned());
    }
    commands
}

/// Whether the answers to [`commands`] say that every limit was taken.
pub(crate) fn check(spec: &DaemonSpec, answers: &str) -> Result<(), DaemonError> {
    let last = number(answers, "the limits")?;
    match spec.active_thread_percentage() {
        Some(asked) if (last - f32::from(asked)).abs() > 0.5 => Err(DaemonError::Refused {
            command: format!("set_default_active_thread_percentage {asked}"),
            answer: format!("the percentage is {last} now"),
        }),
        _ => Ok(()),
    }
}

/// The number that answers end with, where no line is a sentence.
pub(crate) fn number(answers: &str, command: &str) -> Result<f32, DaemonError> {
    let refused = |line: &str| DaemonError::Refused {
        command: command.to_owned(),
        answer: line.chars().take(100).collect(),
    };
    let mut last = Err(refused("no answer"));
    for line in answers.lines().map(str::trim).filter(|line| !line.is_empty()) {
        last = line.parse::<f32>().map_err(|_| refused(line));
        if last.is_err() {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> DaemonSpec {
        let uuid = "GPU-11111111-0000-0000-0000-000000000001";
        serde_json::from_str(&text.replace("U", &format!("\"{uuid}\""))).unwrap()
    }

    #[test]
    fn limits_become_commands() {
        let limited =
            spec(r#"{"devices": [U], "activeThreadPercentage": 50, "memoryLimits": {U: 5120}}"#);
        assert_eq!(
            commands(&limited),
            [
                "set_default_active_thread_percentage 50",
                "set_default_device_pinned_mem_limit 0 5120M",
                PROBE,
            ]
        );
        let second: DaemonSpec = serde_json::from_str(
            r#"{"devices": ["GPU-11111111-0000-0000-0000-000000000002",
                            "GPU-11111111-0000-0000-0000-000000000001"],
                "memoryLimits": {"GPU-11111111-0000-0000-0000-000000000002": 1}}"#,
        )
        .unwrap();
        assert_eq!(commands(&second), ["set_default_device_pinned_mem_limit 1 1M", PROBE]);
        assert!(commands(&spec(r#"{"devices": [U]}"#)).is_empty());
    }

    #[test]
    fn a_sentence_is_a_refusal() {
        let limited = spec(r#"{"devices": [U], "activeThreadPercentage": 50}"#);
        check(&limited, "50.0\n50.0\n").unwrap();
        for (answers, part) in [
            ("Invalid percentage 50\n100.0\n", "Invalid percentage"),
            ("50.0\n100.0\n", "is 100 now"),
            ("", "no answer"),
        ] {
            let error = check(&limited, answers).unwrap_err().to_string();
            assert!(error.contains(part) && error.len() < 200, "{error}");
        }
    }
}
