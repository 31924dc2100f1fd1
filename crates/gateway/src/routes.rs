//! Every path of the listener.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{any, get},
};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_util::task::TaskTracker;

use crate::{conn, health::Health, http::Peer, origin};

/// What the routes need.
pub(crate) struct App {
    pub(crate) shared: conn::Shared,
    pub(crate) health: Arc<Health>,
    pub(crate) trusted: Vec<origin::Network>,
    pub(crate) tasks: TaskTracker,
}

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

const INDEX: &str = "\
hermes-mobile: a gateway between the apps of people and their AI agents.
An app connects by WebSocket to /ws on this address; the first frame is
  {\"t\":\"hello\",\"token\":\"<token>\",\"device\":{\"id\":\"<device id>\"}}
The protocol and the settings are described in docs/ of the project. Health: /healthz, /readyz.

hermes-mobile: шлюз между приложениями людей и их ИИ-агентами.
Приложение подключается по WebSocket к /ws на этом адресе; первый кадр
  {\"t\":\"hello\",\"token\":\"<токен>\",\"device\":{\"id\":\"<id устройства>\"}}
Протокол и настройки описаны в docs/ проекта. Состояние: /healthz, /readyz.
";

/// The one table of routes.
pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(|| async { text(StatusCode::OK, INDEX) }))
        .route("/ws", any(websocket))
        .route("/mobile-ws", any(websocket))
        .route("/healthz", get(|| async { text(StatusCode::OK, "ok\n") }))
        .route("/readyz", get(ready))
        .method_not_allowed_fallback(|| async {
            text(StatusCode::METHOD_NOT_ALLOWED, "Only GET is allowed here.\nЗдесь разрешён только GET.\n")
        })
        .fallback(|| async {
            text(
                StatusCode::NOT_FOUND,
                "There is nothing here. Apps connect by WebSocket to /ws.\nЗдесь ничего нет. Приложения подключаются по WebSocket к /ws.\n",
            )
        })
        .with_state(app)
}

fn text(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = (status, body.into()).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, TEXT);
    response
}

/// Whether the gateway does its work: 200, or 503 with the reason.
async fn ready(State(app): State<Arc<App>>) -> Response {
    match app.health.ready() {
        Ok(()) => text(StatusCode::OK, "ready\n"),
        Err(why) => {
            let mut response = text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"));
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            response
        }
    }
}

/// The door for devices.
async fn websocket(State(app): State<Arc<App>>, mut request: Request) -> Response {
    let answer = match wire::handshake::upgrade(request.method(), request.version(), request.headers()) {
        Ok(headers) => headers,
        Err(refused) => {
            let body = format!(
                "{} Apps connect by WebSocket to this path.\nСюда приложения подключаются по WebSocket.\n",
                refused.detail
            );
            let mut response = text(refused.status, body);
            response.headers_mut().extend(refused.headers);
            return response;
        }
    };
    let (Some(peer), Some(upgraded)) =
        (request.extensions().get::<Peer>().cloned(), request.extensions_mut().remove::<OnUpgrade>())
    else {
        return text(StatusCode::BAD_REQUEST, "This connection cannot be upgraded.\n");
    };
    let origin = origin::origin(peer.address, request.headers(), request.uri().query(), &app.trusted);
    let shared = app.shared.clone();
    app.tasks.spawn(async move {
        if let Ok(upgraded) = upgraded.await {
            conn::run(TokioIo::new(upgraded), origin, shared).await;
        }
        // Counted until here, not only until HTTP is done with it.
        drop(peer.counted);
    });
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    *response.headers_mut() = answer;
    response
}
