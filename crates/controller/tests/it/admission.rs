//! The webhook over HTTPS, with certificates that nobody installs.

use std::net::{SocketAddr, TcpListener};

use gpu_dra_controller::{Settings, Webhook, admit};
use http::Request;
use serde_json::{Value, json};

use super::api::Api;
use super::extra::WEBHOOKS;
use super::world::{Controller, api, is_lease, quiet, settings, until};

const SERVICE: &str = "gpu-dra-controller.gpu-dra.svc";

/// A port that was free a moment ago.
fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn with_webhook(identity: &str, listen: SocketAddr) -> Settings {
    let webhook = Webhook {
        listen,
        service: SERVICE.to_owned(),
        configuration: "gpu-dra-configs".to_owned(),
    };
    Settings { webhook: Some(webhook), http: Some(free_port()), ..settings(identity) }
}

fn install(api: &Api) {
    let text = include_str!("../../../../deploy/webhook.yaml");
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let mut configuration = documents
        .into_iter()
        .find(|object| object["kind"] == "ValidatingWebhookConfiguration")
        .unwrap();
    assert_eq!(configuration["webhooks"][0]["clientConfig"]["service"]["path"], admit::PATH);
    assert_eq!(configuration["webhooks"][0]["failurePolicy"], "Ignore");
    configuration["metadata"]["labels"] = Value::Null;
    api.extra.lock().unwrap().put(WEBHOOKS, configuration);
}

fn bundle(api: &Api) -> Option<String> {
    let configuration = api.extra.lock().unwrap().get(WEBHOOKS, "gpu-dra-configs")?;
    let text = configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str()?.to_owned();
    let bytes: k8s_openapi::ByteString = serde_json::from_value(json!(text)).unwrap();
    Some(String::from_utf8(bytes.0).unwrap())
}

/// Asks as the API server does: over TLS, by the service's name, trusting the bundle alone.
async fn ask(address: SocketAddr, trusted: &str, body: &Value) -> kube::Result<String> {
    let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
    config.tls_server_name = Some(SERVICE.to_owned());
    config.root_cert = Some(ders(trusted));
    config.default_retry = false;
    let client = kube::Client::try_from(config)?;
    let request = Request::post(admit::PATH)
        .header("content-type", "application/json")
        .body(body.to_string().into_bytes())
        .unwrap();
    client.request_text(request).await
}

/// The certificates of a PEM text.
fn ders(pem: &str) -> Vec<Vec<u8>> {
    pem.split("-----BEGIN CERTIFICATE-----")
        .skip(1)
        .map(|part| {
            let base64: String =
                part.split("-----END").next().unwrap().split_whitespace().collect();
            serde_json::from_value::<k8s_openapi::ByteString>(json!(base64)).unwrap().0
        })
        .collect()
}

fn review(interval: &str) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"},
        "object": {"spec": {"devices": {"config": [{"opaque": {"driver": "gpu.nvidia.com",
            "parameters": {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig",
                "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}}}}]}}}}})
}

#[tokio::test]
async fn every_replica_is_trusted_and_answers() {
    use_ring();
    let api = api();
    install(&api);
    let (one, two) = (free_port(), free_port());
    let _a = Controller::start(&api, with_webhook("a", one));
    let _b = Controller::start(&api, with_webhook("b", two));
    let trusted = until("both certificates are in the bundle", || {
        bundle(&api).filter(|bundle| ders(bundle).len() == 2)
    })
    .await;
    for address in [one, two] {
        let answer = ask(address, &trusted, &review("Long")).await.unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["response"], json!({"uid": "u", "allowed": true}));
        let answer = ask(address, &trusted, &review("Loong")).await.unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["response"]["allowed"], false);
        let message = answer["response"]["status"]["message"].as_str().unwrap();
        assert!(message.contains("use Default, Short, Medium or Long"), "{message}");
        assert!(ask(address, &trusted, &json!({})).await.is_err(), "no review, no answer");
    }
    let first: String = trusted.split_inclusive("-----END CERTIFICATE-----").take(1).collect();
    let answers =
        [ask(one, &first, &review("Long")).await, ask(two, &first, &review("Long")).await];
    assert_eq!(answers.iter().filter(|a| a.is_ok()).count(), 1, "each has a key of its own");
}

#[tokio::test]
async fn a_lost_certificate_comes_back_and_idle_is_idle() {
    use_ring();
    let api = api();
    install(&api);
    let _a = Controller::start(&api, with_webhook("a", free_port()));
    let own = until("it is trusted", || bundle(&api).filter(|b| ders(b).len() == 1)).await;
    // Somebody applies the manifest anew, without the bundle.
    install(&api);
    until("it is trusted again", || bundle(&api).filter(|bundle| *bundle == own)).await;
    quiet(&api).await;
    let before = api.count();
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let since = api.calls(|_| true).split_off(before);
    assert!(since.iter().all(is_lease), "{since:?}");
}

/// Time is paused: two months pass at once.
#[tokio::test(start_paused = true)]
async fn a_certificate_is_renewed_long_before_it_ends() {
    use_ring();
    let api = api();
    install(&api);
    let address = free_port();
    let day = std::time::Duration::from_secs(24 * 3600);
    let lease = gpu_dra_controller::LeaseTiming {
        duration: day * 90,
        deadline: day * 80,
        period: day * 70,
    };
    let _a = Controller::start(&api, Settings { lease, ..with_webhook("a", address) });
    let first = until("it is trusted", || bundle(&api).filter(|b| ders(b).len() == 1)).await;
    tokio::time::advance(day * 59).await;
    assert_eq!(bundle(&api).as_ref(), Some(&first));
    tokio::time::advance(day * 2).await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let both = bundle(&api).unwrap();
    assert_eq!(ders(&both).len(), 2, "the old one stays for whoever still has it");
    tokio::time::resume();
    let second = both.strip_prefix(first.trim_end()).unwrap();
    assert!(ask(address, second, &review("Long")).await.is_ok(), "the new one is served");
    assert!(ask(address, &first, &review("Long")).await.is_err(), "and the old one no more");
}

#[tokio::test]
async fn ready_means_trusted_or_not_installed() {
    use_ring();
    let api = api();
    let settings = with_webhook("a", free_port());
    let probes = settings.http.unwrap();
    let _a = Controller::start(&api, settings);
    let get = async |path: &str| {
        let config = kube::Config::new(format!("http://{probes}").parse().unwrap());
        let client = kube::Client::try_from(config).unwrap();
        client.request_text(Request::get(path).body(Vec::new()).unwrap()).await.ok()
    };
    let mut answer = None;
    for _ in 0..1_000 {
        answer = get("/readyz").await;
        if answer.is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(answer.as_deref(), Some("ok"), "without a configuration there is nothing to trust");
    assert_eq!(get("/healthz").await.as_deref(), Some("ok"));
    let is_told =
        async || get("/metrics").await.unwrap().contains("gpu_dra_controller_leading 1\n");
    for _ in 0..1_000 {
        if is_told().await {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(is_told().await, "it leads");
    assert_eq!(bundle(&api), None, "none is made");
}

#[tokio::test]
async fn a_port_in_use_is_told_at_the_start() {
    use_ring();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let api = api();
    let run = gpu_dra_controller::run(
        with_webhook("a", address),
        api.client("a"),
        std::future::pending(),
    );
    let error = run.await.unwrap_err().to_string();
    assert_eq!(error, format!("can't serve admission on {address}: choose another address"));
}

/// Another package of the same build may turn on a second TLS provider; then rustls refuses to
/// choose. An error says that one is chosen already.
fn use_ring() {
    drop(rustls::crypto::ring::default_provider().install_default());
}
