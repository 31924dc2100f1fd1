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
use subtle::ConstantTimeEq;
use tokio::{
    net::TcpStream,
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::task::TaskTracker;

use crate::{
    config::Secret,
    conn,
    health::Health,
    http::Peer,
    inlet::Inside,
    metrics::{Metrics, PATIENCE},
    origin,
};

/// What the routes need.
pub(crate) struct App {
    pub(crate) shared: conn::Shared,
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: MetricsDoor,
    pub(crate) trusted: Vec<origin::Network>,
    pub(crate) tasks: TaskTracker,
}

/// What `/metrics` needs.
pub(crate) struct MetricsDoor {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) hub: mpsc::UnboundedSender<Inside>,
    pub(crate) token: Option<Secret>,
}

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

const INDEX: &str = "\
hermes-mobile: a gateway between the apps of people and their AI agents.
An app connects by WebSocket to /ws on this address; the first frame is
  {\"t\":\"hello\",\"token\":\"<token>\",\"device\":{\"id\":\"<device id>\"}}
The protocol and the settings are described in docs/ of the project. Health: /healthz, /readyz; /metrics.

hermes-mobile: шлюз между приложениями людей и их ИИ-агентами.
Приложение подключается по WebSocket к /ws на этом адресе; первый кадр
  {\"t\":\"hello\",\"token\":\"<токен>\",\"device\":{\"id\":\"<id устройства>\"}}
Протокол и настройки описаны в docs/ проекта. Состояние: /healthz, /readyz; /metrics.
";

/// The one table of routes.
pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(|| async { text(StatusCode::OK, INDEX) }))
        .route("/ws", any(websocket))
        .route("/mobile-ws", any(websocket))
        .route("/healthz", get(|| async { text(StatusCode::OK, "ok\n") }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
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

/// What monitoring reads. For programs on this machine, and for who has the token.
async fn metrics(State(app): State<Arc<App>>, request: Request) -> Response {
    let door = &app.metrics;
    if let Err(refused) = may_read(door.token.as_ref(), &request) {
        return refused;
    }
    let (answer, answered) = oneshot::channel();
    let snapshot = match door.hub.send(Inside::Look(answer)) {
        Ok(()) => timeout(PATIENCE, answered).await.ok().and_then(Result::ok),
        Err(_) => None,
    };
    let open =
        request.headers().get_all(header::ACCEPT).iter().any(|accept| {
            accept.to_str().is_ok_and(|accept| accept.contains("application/openmetrics-text"))
        });
    let (body, kind) = door.metrics.export(snapshot.as_ref(), open);
    let mut response = (StatusCode::OK, body).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Who may read the metrics: by the same rule of loopback as `deliver`, or by the token, which is compared without
/// telling by the time how much of it was right.
fn may_read(token: Option<&Secret>, request: &Request) -> Result<(), Response> {
    let Some(peer) = request.extensions().get::<Peer>() else {
        return Err(text(StatusCode::FORBIDDEN, "Who asks is not known.\n"));
    };
    // The URL's query is not looked at: a token in it would stand in the logs of proxies.
    let origin = origin::origin(peer.address, request.headers(), None, &[]);
    if origin.loopback {
        return Ok(());
    }
    let Some(token) = token else {
        return Err(text(
            StatusCode::FORBIDDEN,
            "The metrics are for programs on this machine. For others set MOBILE_METRICS_TOKEN.\n\
             Метрики доступны программам на этой машине. Для других задайте MOBILE_METRICS_TOKEN.\n",
        ));
    };
    let right = origin.token.is_some_and(|sent| sent.as_bytes().ct_eq(token.reveal().as_bytes()).into());
    if right {
        return Ok(());
    }
    let mut response = text(
        StatusCode::UNAUTHORIZED,
        "Send the token of MOBILE_METRICS_TOKEN: Authorization: Bearer <token>.\n\
         Пришлите токен из MOBILE_METRICS_TOKEN: Authorization: Bearer <токен>.\n",
    );
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Err(response)
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
    let tasks = app.tasks.clone();
    app.tasks.spawn(async move {
        // It is the socket that `http::serve` gave to hyper, taken back out of what hyper put around it.
        let Ok(Ok(parts)) = upgraded.await.map(|upgraded| upgraded.downcast::<TokioIo<TcpStream>>()) else {
            return;
        };
        // Counted until the connection ends, not only until HTTP is done with it.
        let run = conn::open(parts.io.into_inner(), parts.read_buf, origin, shared, peer.counted).await;
        tasks.spawn(run);
    });
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    *response.headers_mut() = answer;
    response
}
