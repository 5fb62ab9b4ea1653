//! Faults strike clients of the edge and nobody else; requests are counted.

use gpu_dra_lab::kinds::RESOURCE_SLICE;
use gpu_dra_lab::{Fault, Trouble};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;

use super::support::{Home, over_http, slice};

/// One request over HTTP by hand: status line, headers and body.
async fn raw(home: &Home, request: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(home.lab.addr()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n")
}

#[tokio::test]
async fn troubles_come_as_ordered_and_end() {
    let home = Home::new().await;
    let list = "/apis/resource.k8s.io/v1/resourceslices";
    for (trouble, line, header) in [
        (Trouble::TooManyRequests(3), "HTTP/1.1 429 Too Many Requests", "retry-after: 3"),
        (Trouble::InternalError, "HTTP/1.1 500 Internal Server Error", ""),
        (Trouble::Forbidden, "HTTP/1.1 403 Forbidden", ""),
    ] {
        let fault =
            Fault { verb: Some("list"), resource: Some("resourceslices"), times: Some(1), trouble };
        home.api().faults().add(fault);
        assert!(raw(&home, &get("/api/v1/nodes", "")).await.starts_with("HTTP/1.1 200 OK"));
        let answer = raw(&home, &get(list, "")).await;
        assert!(answer.starts_with(line) && answer.contains(header), "{answer}");
        assert!(raw(&home, &get(list, "")).await.starts_with("HTTP/1.1 200 OK"));
    }
}

#[tokio::test]
async fn kubes_client_tries_again_after_429() {
    let home = Home::new().await;
    let fault =
        Fault { verb: None, resource: None, times: Some(1), trouble: Trouble::TooManyRequests(0) };
    home.api().faults().add(fault);
    let slices: Api<ResourceSlice> = Api::all(over_http(&home.lab).await);
    slices.list(&ListParams::default()).await.unwrap();
    assert_eq!(home.api().requests().of("list", "resourceslices"), 2);
}

#[tokio::test]
async fn a_dropped_field_is_dropped_silently() {
    let home = Home::new().await;
    home.api().faults().drop_field("Device", "consumesCounters");
    let mut wanted = slice("s", &["gpu-0"]);
    wanted["spec"]["devices"][0]["consumesCounters"] =
        json!([{"counterSet": "x", "counters": {"c": {"value": "1"}}}]);
    let slices: Api<ResourceSlice> = Api::all(home.lab.client());
    let wanted: ResourceSlice = serde_json::from_value(wanted).unwrap();
    let stored = slices.create(&PostParams::default(), &wanted).await.unwrap();
    assert_eq!(stored.spec.devices.unwrap()[0].consumes_counters, None);
}

#[tokio::test]
async fn requests_are_counted_by_verb_and_resource() {
    let home = Home::new().await;
    let slices: Api<ResourceSlice> = Api::all(home.lab.client());
    assert_eq!(home.api().requests().writes(), 0);
    slices.list(&ListParams::default()).await.unwrap();
    let wanted: ResourceSlice = serde_json::from_value(slice("s", &[])).unwrap();
    slices.create(&PostParams::default(), &wanted).await.unwrap();
    slices.get("s").await.unwrap();
    // The control plane's own reads and writes don't count.
    home.create(&RESOURCE_SLICE, slice("t", &[]));
    let requests = home.api().requests();
    assert_eq!(requests.writes(), 1);
    assert_eq!(requests.of("create", "resourceslices"), 1);
    assert_eq!(requests.snapshot().len(), 3);
}

#[tokio::test]
async fn an_unplugged_api_refuses_connections_and_comes_back_with_its_objects() {
    let home = Home::new().await;
    home.create(&RESOURCE_SLICE, slice("s", &[]));
    home.lab.unplug_api();
    // The listener closes with its task.
    home.until("refused", || std::net::TcpStream::connect(home.lab.addr()).is_err().then_some(()))
        .await;
    home.lab.replug_api().await.unwrap();
    let answer = raw(&home, &get("/apis/resource.k8s.io/v1/resourceslices/s", "")).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[tokio::test]
async fn web_pages_are_refused() {
    let home = Home::new().await;
    let page = raw(&home, &get("/version", "Origin: http://evil.example\r\n")).await;
    assert!(page.starts_with("HTTP/1.1 403"), "{page}");
    let rebound = "GET /version HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert!(raw(&home, rebound).await.starts_with("HTTP/1.1 403"));
    assert!(raw(&home, &get("/version", "")).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn bodies_of_all_sorts_are_answered_not_fatal() {
    let home = Home::new().await;
    let post = |body: &str, media: &str| {
        format!(
            "POST /apis/resource.k8s.io/v1/resourceslices HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {media}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let deep = "[".repeat(100_000);
    for (body, media, code) in [
        ("", "application/json", 400),
        ("null", "application/json", 400),
        ("[]", "application/json", 400),
        ("{}", "application/json", 422),
        (&*deep, "application/json", 400),
        ("{\"metadata\": 7}", "application/json", 400),
        ("{\"kind\": \"Pod\"}", "application/json", 400),
        ("k8s\0", "application/vnd.kubernetes.protobuf", 415),
        ("metadata: {name: a}\nspec: []", "application/yaml", 400),
    ] {
        let answer = raw(&home, &post(body, media)).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {code}")),
            "{media} {}: {answer}",
            &body[..body.len().min(40)]
        );
    }
    let doubled =
        post(r#"{"metadata": {"name": "a", "name": "b"}, "x": 1, "spec": {}}"#, "application/json");
    let node = doubled.replace("/apis/resource.k8s.io/v1/resourceslices", "/api/v1/nodes");
    let answer = raw(&home, &node).await;
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert!(answer.contains(r#"warning: 299 - "duplicate field \"metadata.name\"""#), "{answer}");
    assert!(answer.contains(r#"warning: 299 - "unknown field \"x\"""#), "{answer}");
    let strict = post(r#"{"metadata": {"name": "a", "name": "b"}}"#, "application/json")
        .replace("resourceslices ", "resourceslices?fieldValidation=Strict ");
    let answer = raw(&home, &strict).await;
    assert!(
        answer.contains(r#"strict decoding error: duplicate field \"metadata.name\""#),
        "{answer}"
    );
    assert!(raw(&home, &get("/apis/none/v1/things", "")).await.starts_with("HTTP/1.1 404"));
    let protobuf = "Accept: application/vnd.kubernetes.protobuf\r\n";
    assert!(raw(&home, &get("/api/v1/nodes", protobuf)).await.starts_with("HTTP/1.1 406"));
}
