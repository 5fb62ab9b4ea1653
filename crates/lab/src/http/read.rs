//! Get, list and watch.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use super::answer::{self, Form};
use super::request::Call;
use super::table;
use crate::api::{ApiServer, Notice, Watch};
use crate::error::ApiError;
use crate::selector::Selector;
use crate::store::Change;

/// How long a watch is silent before it is sent a bookmark.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// A watch without a limit of its own ends after this; the real server takes 30 to 60 minutes.
const WATCH: u64 = 3600;

pub(super) fn serve(server: &Arc<ApiServer>, call: &Call) -> Result<Response<Body>, ApiError> {
    match call.verb {
        "get" => {
            let object = server.get(call.kind, &call.namespace, &call.name)?;
            let value = call.form.object(call.kind, &object, call.param("includeObject"));
            Ok(answer::json(StatusCode::OK, &value))
        }
        "list" => list(server, call).map(|value| answer::json(StatusCode::OK, &value)),
        _ => watch(server, call),
    }
}

fn list(server: &ApiServer, call: &Call) -> Result<Value, ApiError> {
    let (mut items, revision) = server.list(call.kind, &call.namespace, &call.selector()?);
    let page = Page::read(call.param("continue"))?;
    let revision = page.as_ref().map_or(revision, |page| page.revision);
    if let Some(page) = page {
        items.retain(|item| position(item) > page.after);
    }
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    let limit = usize::try_from(call.number("limit")?.unwrap_or(0)).unwrap_or(usize::MAX);
    if limit > 0 && items.len() > limit {
        metadata["remainingItemCount"] = (items.len() - limit).into();
        items.truncate(limit);
        let after = items.last().map(|last| position(last)).unwrap_or_default();
        metadata["continue"] = Page { revision, after }.text().into();
    }
    let items = items.iter().map(|item| &**item);
    Ok(match call.form {
        Form::Table => {
            let mut table = table::of(call.kind, items, call.param("includeObject"), true);
            table["metadata"] = metadata;
            table
        }
        Form::Metadata => json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata, "items": items.map(answer::metadata).collect::<Vec<_>>(),
        }),
        Form::Full => json!({
            "kind": format!("{}List", call.kind.kind), "apiVersion": call.kind.api_version(),
            "metadata": metadata,
            "items": items.map(|item| call.kind.shown(item)).collect::<Vec<_>>(),
        }),
    })
}

/// Where the next page of a list begins. Later pages show the present, not the first page's revision; a watch
/// from that revision then tells what changed between.
#[derive(Debug)]
struct Page {
    revision: u64,
    after: (String, String),
}

fn position(item: &Value) -> (String, String) {
    let text = |field| item["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

impl Page {
    /// Names have no slash, so it can stand between.
    fn text(&self) -> String {
        format!("{}/{}/{}", self.revision, self.after.0, self.after.1)
    }

    fn read(text: &str) -> Result<Option<Self>, ApiError> {
        if text.is_empty() {
            return Ok(None);
        }
        let page = || {
            let mut parts = text.splitn(3, '/');
            let revision = parts.next()?.parse().ok()?;
            let after = (parts.next()?.to_owned(), parts.next()?.to_owned());
            Some(Self { revision, after })
        };
        page().map(Some).ok_or_else(|| ApiError::bad_request("continue key is not valid"))
    }
}

/// One watch on the wire.
struct Feed {
    watch: Watch,
    call_kind: &'static crate::kinds::Kind,
    form: Form,
    include: String,
    bookmarks: bool,
    announce_initial: bool,
    first: bool,
    ended: bool,
    deadline: std::pin::Pin<Box<tokio::time::Sleep>>,
    cuts: tokio::sync::watch::Receiver<u64>,
}

fn watch(server: &Arc<ApiServer>, call: &Call) -> Result<Response<Body>, ApiError> {
    let selector = match &*call.name {
        "" => call.selector()?,
        name => Selector::field("metadata.name", name),
    };
    let initial = call.param("sendInitialEvents");
    let from = match (call.param("resourceVersion"), initial) {
        (_, "true") => None,
        ("" | "0", "false") => Some(server.list(call.kind, &call.namespace, &selector).1),
        ("" | "0", _) => None,
        (text, _) => Some(text.parse().map_err(|_| {
            ApiError::bad_request(format!(
                "Invalid value: \"{text}\": resourceVersion is no number"
            ))
        })?),
    };
    let seconds = call.number("timeoutSeconds")?.filter(|&seconds| seconds > 0).unwrap_or(WATCH);
    let mut cuts = server.faults().cuts();
    cuts.mark_unchanged();
    let feed = Feed {
        watch: server.watch(call.kind, &call.namespace, selector, from),
        call_kind: call.kind,
        form: call.form,
        include: call.param("includeObject").to_owned(),
        bookmarks: call.flag("allowWatchBookmarks"),
        announce_initial: initial == "true",
        first: true,
        ended: false,
        deadline: Box::pin(tokio::time::sleep(Duration::from_secs(seconds))),
        cuts,
    };
    let lines = stream::unfold(feed, |mut feed| async move {
        let line = feed.line().await?;
        Some((line, feed))
    });
    let mut response = Response::new(Body::from_stream(lines));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

impl Feed {
    /// The next line; an error cuts the connection, `None` ends it in order.
    async fn line(&mut self) -> Option<Result<Bytes, io::Error>> {
        loop {
            if self.ended {
                return None;
            }
            let idle = self.bookmarks.then_some(BOOKMARKS);
            let notice = tokio::select! {
                biased;
                () = cut(&mut self.cuts) => {
                    self.ended = true;
                    return Some(Err(io::Error::from(io::ErrorKind::ConnectionReset)));
                }
                () = &mut self.deadline => return None,
                notice = self.watch.next(idle) => notice?,
            };
            if let Some(event) = self.event(notice) {
                let mut line = event.to_string();
                line.push('\n');
                return Some(Ok(Bytes::from(line)));
            }
        }
    }

    fn event(&mut self, notice: Result<Notice, ApiError>) -> Option<Value> {
        let (kind, object) = match notice {
            Ok(Notice::Object(change, object)) => {
                let name = match change {
                    Change::Added => "ADDED",
                    Change::Modified => "MODIFIED",
                    Change::Deleted => "DELETED",
                };
                let first = std::mem::replace(&mut self.first, false);
                (name, self.form.event(self.call_kind, &object, &self.include, first))
            }
            Ok(Notice::Bookmark(revision)) => ("BOOKMARK", self.bookmark(revision, false)),
            Ok(Notice::InitialEnd(revision)) if self.announce_initial => {
                ("BOOKMARK", self.bookmark(revision, true))
            }
            Ok(Notice::InitialEnd(_)) => return None,
            Err(expired) => {
                self.ended = true;
                ("ERROR", expired.to_status())
            }
        };
        Some(json!({"type": kind, "object": object}))
    }

    fn bookmark(&self, revision: u64, initial_end: bool) -> Value {
        let mut object = json!({
            "kind": self.call_kind.kind, "apiVersion": self.call_kind.api_version(),
            "metadata": {"resourceVersion": revision.to_string(), "creationTimestamp": null},
        });
        if initial_end {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        match self.form {
            Form::Full => object,
            Form::Metadata => answer::metadata(&object),
            Form::Table => json!({
                "kind": "Table", "apiVersion": "meta.k8s.io/v1", "columnDefinitions": null,
                "metadata": {"resourceVersion": revision.to_string()},
                "rows": [{"cells": [], "object": answer::metadata(&object)}],
            }),
        }
    }
}

/// Returns when watches are cut.
async fn cut(cuts: &mut tokio::sync::watch::Receiver<u64>) {
    if cuts.changed().await.is_err() {
        // The server is gone; its watches end by themselves.
        let never: Infallible = std::future::pending().await;
        match never {}
    }
}
