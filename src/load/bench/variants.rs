//! What an option costs: create_ticket on replicas that differ in that option alone.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;

use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use super::table;

/// A replica that differs from the usual one.
pub struct Variant {
    /// Its cell.
    pub what: &'static str,
    /// In what it differs, as environment variables.
    pub settings: &'static [(&'static str, &'static str)],
    /// Whether its traces go to a [`Sink`].
    pub traced: bool,
}

/// More than any bench calls for.
const NEVER_REACHED: &str = "1000000000";

/// Every one.
pub const VARIANTS: [Variant; 5] = [
    Variant {
        what: table::CREATE_BLIND,
        settings: &[("POSSIBLE_DUPLICATES", "false")],
        traced: false,
    },
    Variant {
        what: table::CREATE_BY_UNITS,
        settings: &[("LIMIT_PER_SOURCE_PER_HOUR", NEVER_REACHED)],
        traced: false,
    },
    Variant {
        what: table::CREATE_COUNTED,
        settings: &[("LIMIT_GLOBAL_PER_HOUR", NEVER_REACHED)],
        traced: false,
    },
    Variant {
        what: table::CREATE_SAMPLED,
        settings: &[
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.1"),
        ],
        traced: true,
    },
    Variant {
        what: table::CREATE_TRACED,
        settings: &[("OTEL_TRACES_SAMPLER", "always_on")],
        traced: true,
    },
];

/// A collector that takes whatever it is sent, and keeps nothing of it. Its own processor time is not counted.
pub struct Sink {
    /// Where it is.
    pub url: String,
    _serving: AbortOnDropHandle<()>,
}

impl Sink {
    /// Starts it on a free port of loopback.
    ///
    /// # Errors
    /// None is free.
    pub async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let connection = hyper::server::conn::http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service_fn(take)));
            }
        });
        Ok(Self {
            url,
            _serving: AbortOnDropHandle::new(serving),
        })
    }
}

/// The body is read before the answer, so that a replica sends the whole of it.
async fn take(mut request: Request<Incoming>) -> Result<Response<String>, Infallible> {
    while let Some(Ok(_)) = poll_fn(|cx| Pin::new(request.body_mut()).poll_frame(cx)).await {}
    Ok(Response::new(String::new()))
}
