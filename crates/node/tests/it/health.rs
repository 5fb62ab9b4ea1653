//! What the health watch makes of events, readings, surveys and people's words, step by step.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpu_dra_executor::Journal;
use gpu_dra_health::{
    EventKind, GpuEvent, HealthReading, Policy, RecoveryAction, State, UnixSeconds, Verdict,
};
use gpu_dra_host::Files;
use gpu_dra_host::sim::SimFiles;
use gpu_dra_model::BootId;
use gpu_dra_node::events::{Announcer, Happening};
use gpu_dra_node::health::{HealthWatch, News, Parts, Told};
use gpu_dra_node::survey::Surveyor;
use gpu_dra_nvml::{Heard, Watching};
use gpu_dra_testkit::{claim, gpu_uuid};
use k8s_openapi::api::resource::v1::DeviceTaint;
use tokio::sync::{mpsc, watch};

use crate::survey::{FakeGpus, surveyor};

const BOOT: &str = "11111111-2222-3333-4444-555555555555";

/// A node of two GPUs, and an agent's health watch on it.
struct World {
    gpus: Arc<FakeGpus>,
    files: Arc<SimFiles>,
    surveyor: Surveyor,
    watch: HealthWatch,
    told: watch::Receiver<Option<Arc<Told>>>,
    happenings: mpsc::Receiver<Happening>,
    now: i64,
}

impl World {
    fn new() -> Self {
        let gpus = Arc::new(FakeGpus::default());
        gpus.are(&[(0, 0), (1, 1)]);
        Self::on(gpus, Arc::default(), BOOT, Policy::default())
    }

    fn on(gpus: Arc<FakeGpus>, files: Arc<SimFiles>, boot: &str, policy: Policy) -> Self {
        let (announcer, happenings) = Announcer::new();
        let dynamic: Arc<dyn Files> = Arc::<SimFiles>::clone(&files);
        let journal = Journal::open(Path::new("/journal"), Arc::clone(&dynamic)).unwrap();
        let (watch, told) = HealthWatch::new(Parts {
            gpus: Arc::<FakeGpus>::clone(&gpus),
            files: dynamic,
            dir: Path::new("/plugin"),
            boot_id: BootId::new(boot).unwrap(),
            policy,
            journal: Arc::new(journal),
            announcer,
        })
        .unwrap();
        let surveyor = surveyor(&gpus, &files);
        let mut world = Self { gpus, files, surveyor, watch, told, happenings, now: 1000 };
        world.survey();
        world
    }

    /// The agent is restarted a minute later, maybe after a reboot.
    fn restarted(self, boot: &str, policy: Policy) -> Self {
        let now = self.now + 60;
        Self { now, ..Self::on(self.gpus, self.files, boot, policy) }
    }

    fn note(&mut self, news: News) {
        self.now += 1;
        self.watch.note(news, UnixSeconds(self.now));
    }

    fn survey(&mut self) {
        if let Some(survey) = self.surveyor.look() {
            self.note(News::Survey(Arc::new(survey)));
        }
    }

    fn event(&mut self, gpu: u32, kind: EventKind) {
        let event = GpuEvent { gpu: gpu_uuid(gpu), kind, instance: None };
        self.note(News::Heard(Heard::Event(event)));
    }

    fn read(&mut self) {
        self.now += 1;
        self.watch.read_all(UnixSeconds(self.now));
    }

    fn asks(&mut self, gpu: u32, action: RecoveryAction) {
        self.gpus
            .say(gpu, HealthReading { recovery_action: Some(action), ..HealthReading::default() });
        self.read();
    }

    fn asked(&mut self, value: &str) {
        self.note(News::Asked { value: Some(value.to_owned()), is_old: false });
    }

    fn device_taints(&self, device: &str) -> Vec<DeviceTaint> {
        let pool = self.told.borrow().as_ref().unwrap().pool.unpack().unwrap();
        let found = pool.devices().find(|found| found.name == device).cloned();
        found.expect("it is published").taints.unwrap_or_default()
    }

    /// As `kubectl taint` writes them.
    fn taints(&self, device: &str) -> Vec<String> {
        let text = |taint: DeviceTaint| {
            let value = taint.value.map(|value| format!("={value}")).unwrap_or_default();
            format!("{}{value}:{}", taint.key, taint.effect)
        };
        self.device_taints(device).into_iter().map(text).collect()
    }

    fn state(&self, device: &str) -> (State, String) {
        let told = self.told.borrow().clone().unwrap();
        let (_, report) = told.reports.iter().find(|(name, _)| name.as_str() == device).unwrap();
        (report.state, report.message.clone())
    }

    /// A claim holds the first GPU, maybe with others.
    fn holds(&self, name: &str, uid: u32) {
        let reference = claim(name).uid(uid).reference();
        let record = serde_json::json!({
            "version": 1, "claim": reference, "phase": "prepared", "bootId": BOOT,
            "devices": [{
                "requests": ["gpu"], "pool": "node-a", "device": "gpu-0", "gpu": gpu_uuid(0),
                "cdiDevice": format!("k8s.gpu.nvidia.com/claim={uid}-gpu-0"),
            }],
        });
        let file = format!("/journal/{}.json", reference.uid);
        self.files.replace(file.as_ref(), record.to_string().as_bytes(), 0o600).unwrap();
    }

    fn happened(&mut self) -> Vec<Happening> {
        std::iter::from_fn(|| self.happenings.try_recv().ok()).collect()
    }

    fn reasons(&mut self) -> Vec<&'static str> {
        self.happened().into_iter().map(|happening| happening.reason).collect()
    }
}

#[test]
fn an_xid_taints_its_gpu_alone_until_the_driver_takes_back_what_it_asked_for() {
    let mut world = World::new();
    let plain = world.told.borrow().as_ref().unwrap().pool.clone();
    world.holds("train", 1);

    world.event(0, EventKind::Xid(79));
    assert_eq!(world.taints("gpu-0"), ["gpu.nvidia.com/xid=79:NoExecute"]);
    assert!(world.taints("gpu-1").is_empty());
    assert_eq!(world.state("gpu-0").0, State::Unhealthy);
    assert_eq!(world.state("gpu-1"), (State::Healthy, String::new()));
    let happened = world.happened();
    assert_eq!(happened.len(), 1, "{happened:?}");
    assert_eq!(happened[0].reason, "DeviceTainted");
    assert_eq!(happened[0].claims, [claim("train").reference()], "its pods are told");
    for words in ["gpu-0", "Xid 79", "fallen off the bus", "reboot"] {
        assert!(happened[0].message.contains(words), "{}", happened[0].message);
    }

    // Something milder, and the same again, change nothing.
    world.told.mark_unchanged();
    world.event(0, EventKind::Xid(74));
    world.event(0, EventKind::Xid(79));
    assert!(!world.told.has_changed().unwrap());
    assert!(world.happened().is_empty());

    world.asks(0, RecoveryAction::Reset);
    assert_eq!(world.reasons(), ["DeviceTainted"]);
    world.asks(0, RecoveryAction::Nothing);
    assert!(world.taints("gpu-0").is_empty());
    assert_eq!(world.reasons(), ["DeviceTaintGone", "DeviceTaintGone"]);
    assert_eq!(world.told.borrow().as_ref().unwrap().pool, plain);
    assert!(world.watch.must_register(), "a reset ends what was registered");
}

#[test]
fn an_xid_of_a_program_and_a_quiet_node_change_and_write_nothing() {
    let mut world = World::new();
    let files = world.files.contents();
    world.told.mark_unchanged();
    world.event(0, EventKind::Xid(13));
    world.event(0, EventKind::Xid(31));
    for _ in 0..10 {
        world.read();
    }
    assert!(!world.told.has_changed().unwrap());
    assert!(world.happened().is_empty());
    assert_eq!(world.files.contents(), files);
}

#[test]
fn a_restart_keeps_taints_with_their_time_and_a_reboot_ends_them() {
    let mut world = World::new();
    world.event(0, EventKind::Xid(79));
    let taints = world.device_taints("gpu-0");
    let added = taints[0].time_added.as_ref().unwrap();
    assert_eq!(added.0.as_second(), world.now);
    let mut world = world.restarted(BOOT, Policy::default());
    assert_eq!(world.device_taints("gpu-0"), taints, "so nothing is written");
    assert!(world.happened().is_empty(), "it was told before");
    let world = world.restarted("99999999-2222-3333-4444-555555555555", Policy::default());
    assert!(world.taints("gpu-0").is_empty());
}

#[test]
fn health_that_cannot_be_understood_is_moved_aside() {
    let files: Arc<SimFiles> = Arc::default();
    files.replace("/plugin/health.json".as_ref(), b"garbage", 0o600).unwrap();
    let gpus = Arc::new(FakeGpus::default());
    gpus.are(&[(0, 0)]);
    let world = World::on(gpus, files, BOOT, Policy::default());
    assert!(world.taints("gpu-0").is_empty());
    assert_eq!(world.files.contents()[&PathBuf::from("/plugin/health.json.bad")], b"garbage");
}

#[test]
fn a_lost_gpu_stays_tainted_and_comes_back() {
    let mut world = World::new();
    world.gpus.are(&[(0, 0)]);
    world.survey();
    assert_eq!(world.taints("gpu-1"), ["gpu.nvidia.com/gpu-lost:NoExecute"]);
    assert_eq!(world.state("gpu-1").0, State::Unhealthy);
    assert!(world.taints("gpu-0").is_empty());
    assert_eq!(world.reasons(), ["DeviceTainted"]);
    let mut world = world.restarted(BOOT, Policy::default());
    assert_eq!(world.taints("gpu-1"), ["gpu.nvidia.com/gpu-lost:NoExecute"]);
    world.gpus.are(&[(0, 0), (1, 1)]);
    world.survey();
    assert!(world.taints("gpu-1").is_empty());
    assert_eq!(world.reasons(), ["DeviceTaintGone"]);
    assert!(world.watch.must_register());
}

#[test]
fn no_policy_gives_out_a_gpu_that_does_not_answer() {
    let policy = Policy { gpu_lost: Verdict::Ignore, ..Policy::default() };
    let mut world = World::new().restarted(BOOT, policy);
    world.gpus.are(&[(1, 1)]);
    world.survey();
    assert_eq!(world.taints("gpu-0"), ["gpu.nvidia.com/unavailable:NoSchedule"]);
    let (state, message) = world.state("gpu-0");
    assert_eq!(state, State::Unhealthy);
    assert!(message.contains("doesn't answer"), "{message}");
}

#[test]
fn who_cannot_be_heard_is_told_once() {
    let mut world = World::new();
    let error = gpu_dra_nvml::CallError {
        call: "nvmlDeviceRegisterEvents",
        code: gpu_dra_nvml::Code::NOT_SUPPORTED,
    };
    let watching =
        Watching { watched: [gpu_uuid(1)].into(), unmonitored: [(gpu_uuid(0), error)].into() };
    for _ in 0..2 {
        world.note(News::Heard(Heard::Watching(watching.clone())));
    }
    assert_eq!(world.taints("gpu-0"), ["gpu.nvidia.com/unmonitored:None"]);
    assert_eq!(world.state("gpu-0").0, State::Healthy);
    assert!(world.taints("gpu-1").is_empty());
    assert_eq!(world.reasons(), ["DeviceWarning"]);
}

#[test]
fn a_person_clears_once_a_word() {
    let mut world = World::new();
    world.note(News::Asked { value: Some("gpu-0".into()), is_old: true });
    world.event(0, EventKind::Xid(79));
    world.event(0, EventKind::DoubleBitEcc);
    world.happened();
    world.asked("gpu-0");
    assert_eq!(world.taints("gpu-0").len(), 2, "the word was there before");

    world.asked("gpu-0/gpu.nvidia.com/ecc");
    assert_eq!(world.taints("gpu-0"), ["gpu.nvidia.com/xid=79:NoExecute"]);
    assert_eq!(world.reasons(), ["TaintCleared", "DeviceTaintGone"]);
    world.asked(gpu_uuid(0).as_str());
    assert!(world.taints("gpu-0").is_empty());
    world.happened();

    // The word stays at the Node, also over a restart.
    world.event(0, EventKind::Xid(79));
    let mut world = world.restarted(BOOT, Policy::default());
    world.asked(gpu_uuid(0).as_str());
    assert_eq!(world.taints("gpu-0"), ["gpu.nvidia.com/xid=79:NoExecute"]);
    world.asked(&format!("{}#again", gpu_uuid(0)));
    assert!(world.taints("gpu-0").is_empty());
    world.happened();
    for nothing in ["gpu-0", "gpu-77", "What?"] {
        world.asked(nothing);
        assert_eq!(world.reasons(), ["NothingCleared"], "{nothing}");
    }
}

#[test]
fn what_happens_to_a_gpu_of_many_claims_is_one_happening() {
    let mut world = World::new();
    for nth in 0..100 {
        world.holds(&format!("share-{nth}"), nth);
    }
    world.event(0, EventKind::Xid(48));
    let happened = world.happened();
    assert_eq!(happened.len(), 1);
    assert_eq!(happened[0].claims.len(), 100);
    let first = happened[0].since.unwrap();
    // It goes, and comes again with the same words: that is another happening.
    world.asked("gpu-0");
    world.event(0, EventKind::Xid(48));
    let again = world.happened();
    assert_eq!(again.last().unwrap().message, happened[0].message);
    assert!(again.last().unwrap().since.unwrap() > first);
}

/// Field report N28: an Xid 48 and the 45s that follow it, with the reading after each event.
#[test]
fn n28_a_burst_of_xids_and_mig_work_elsewhere_leave_the_worst() {
    let mut world = World::new();
    let action = Some(RecoveryAction::Nothing);
    for gpu in [0, 1] {
        world.gpus.say(gpu, HealthReading { recovery_action: action, ..HealthReading::default() });
    }
    world.read();
    for kind in [EventKind::Xid(48), EventKind::Xid(45), EventKind::Xid(45), EventKind::Xid(45)] {
        world.event(0, kind);
    }
    assert_eq!(world.taints("gpu-0"), ["gpu.nvidia.com/xid=48:NoSchedule"]);
    // Each change of what the other GPU offers is a new survey, with a reading of all.
    for round in 0..5 {
        world.event(1, EventKind::MigConfigChange);
        world.gpus.are(&[(0, 0), (1, 1), (2, 2)][..2 + round % 2]);
        world.survey();
    }
    assert_eq!(world.taints("gpu-0"), ["gpu.nvidia.com/xid=48:NoSchedule"]);
    world.read();
    world.read();
    assert_eq!(world.taints("gpu-0"), ["gpu.nvidia.com/xid=48:NoSchedule"]);
    world.read();
    assert!(world.taints("gpu-0").is_empty(), "settled");
}

#[test]
fn a_gpu_that_hangs_keeps_nobody_from_seeing_the_others() {
    let mut world = World::new();
    world.gpus.hangs(0, true);
    let began = Instant::now();
    world.read();
    world.event(1, EventKind::Xid(79));
    // Its own Xids are heard too; it isn't asked again.
    world.event(0, EventKind::Xid(48));
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert_eq!(world.taints("gpu-1"), ["gpu.nvidia.com/xid=79:NoExecute"]);
    assert_eq!(world.taints("gpu-0"), ["gpu.nvidia.com/xid=48:NoSchedule"]);
    world.asked("gpu-0");
    world.happened();
    let began = Instant::now();
    world.read();
    world.read();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(world.taints("gpu-0"), ["gpu.nvidia.com/unreadable:None"]);
    let (state, message) = world.state("gpu-0");
    assert_eq!(state, State::Unknown);
    assert!(message.contains("doesn't come back"), "{message}");
    assert_eq!(world.reasons(), ["DeviceWarning"], "once");

    world.gpus.hangs(0, false);
    std::thread::sleep(Duration::from_millis(100));
    world.read();
    assert!(world.taints("gpu-0").is_empty());
    assert_eq!(world.state("gpu-0").0, State::Healthy);
}
