//! `GET /metrics` of a node, for Prometheus.
//!
//! **Hazard.** Anyone may connect, say nothing, never end a line or never read. **Guarantee.** Nobody
//! holds another up: each connection has a few seconds and a few KiB for its request, and makes room
//! for newer ones where there are many. **Structure.** One thread, on which a task for each connection
//! sleeps; all of them end with [`Serving`].

use crate::failure::Failure;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use isometry::Machine;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::{self, SocketAddr};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{self, Runtime};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// How many may ask at once; the oldest goes where there would be more.
const MOST_CLIENTS: usize = 32;

/// How long one may take, from its connection to the last byte of the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest head of a request, and the most that is read ahead.
const MOST_BYTES: usize = 16 << 10;

/// What Prometheus' text format is called, and any other text.
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// How long nobody is accepted after the system could not: it may have no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// A port that listens. Who connects is answered once it is [served](Port::serve).
pub(crate) struct Port {
    listener: net::TcpListener,
    pub(crate) address: SocketAddr,
}

impl Port {
    /// Listens at `HOST:PORT`.
    pub(crate) fn listen(at: &str) -> Result<Port, Failure> {
        let told = |e: io::Error| format!("--metrics {at}: {e}");
        let listener = net::TcpListener::bind(at).map_err(|e| match e.kind() {
            ErrorKind::InvalidInput => Failure::usage(told(e)),
            _ => Failure::failed(told(e)),
        })?;
        let failed = |e| Failure::failed(told(e));
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Port { listener, address })
    }

    /// Answers whoever connects, until what it returns is dropped.
    pub(crate) fn serve(self, machine: &Arc<Machine>) -> Result<Serving, Failure> {
        let failed = |e| Failure::failed(format_args!("serving metrics: {e}"));
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let context = runtime.enter();
        let listener = TcpListener::from_std(self.listener).map_err(failed)?;
        drop(context);
        let (end, ended) = oneshot::channel();
        let machine = Arc::clone(machine);
        let run = move || run(&runtime, accept(listener, machine), ended);
        let thread =
            thread::Builder::new().name("iso-metrics".to_owned()).spawn(run).map_err(failed)?;
        Ok(Serving { end: Some(end), thread: Some(thread) })
    }
}

/// The thread that answers. Dropping it cuts off who is connected, and waits for its end.
pub(crate) struct Serving {
    end: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // The other end hears that this one is gone.
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was told by the thread itself.
            let _ = thread.join();
        }
    }
}

fn run(
    runtime: &Runtime,
    accept: impl Future<Output = ()> + Send + 'static,
    ended: oneshot::Receiver<Infallible>,
) {
    runtime.spawn(accept);
    // Nothing is ever sent: this is the end.
    let _ = runtime.block_on(ended);
}

async fn accept(listener: TcpListener, machine: Arc<Machine>) {
    let mut clients: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        clients.retain(|client| !client.is_finished());
        if clients.len() >= MOST_CLIENTS
            && let Some(oldest) = clients.pop_front()
        {
            oldest.abort();
        }
        let client = tokio::spawn(timeout(PATIENCE, converse(stream, Arc::clone(&machine))));
        clients.push_back(client.abort_handle());
    }
}

/// Hears one request and answers it.
async fn converse(stream: TcpStream, machine: Arc<Machine>) {
    let answer = |request: Request<Incoming>| {
        let answer = answer(&machine, request.method(), request.uri().path());
        async { Ok::<_, Infallible>(answer) }
    };
    let mut http = http1::Builder::new();
    http.keep_alive(false).max_buf_size(MOST_BYTES);
    // Who speaks another language, or has gone, is not there to be told so.
    let _ = http.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
}

fn answer(machine: &Machine, method: &Method, path: &str) -> Response<String> {
    let told = |status, (name, value): (HeaderName, &'static str), body: String| {
        let answer = Response::builder().status(status).header(name, value).body(body);
        answer.expect("status and header are constants")
    };
    match (path, method) {
        ("/metrics", &Method::GET) => match machine.metrics() {
            Ok(text) => told(StatusCode::OK, (CONTENT_TYPE, FORMAT), text),
            Err(error) => {
                let failed = StatusCode::INTERNAL_SERVER_ERROR;
                told(failed, (CONTENT_TYPE, PLAIN), format!("{error}\n"))
            }
        },
        ("/metrics", _) => {
            told(StatusCode::METHOD_NOT_ALLOWED, (ALLOW, "GET"), "only GET\n".to_owned())
        }
        _ => told(StatusCode::NOT_FOUND, (CONTENT_TYPE, PLAIN), "see /metrics\n".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn serving() -> (SocketAddr, Serving) {
        let machine = Machine::builder().assume(true).lanes(1).staging(1 << 20).open().unwrap();
        let port = Port::listen("127.0.0.1:0").unwrap();
        (port.address, port.serve(&Arc::new(machine)).unwrap())
    }

    fn connect(at: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// What is answered to a request: its first line and all of it.
    fn ask(at: SocketAddr, request: &str) -> (String, String) {
        let mut stream = connect(at);
        write!(stream, "{request} HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer.lines().next().unwrap_or_default().to_owned(), answer)
    }

    #[test]
    fn only_get_of_metrics_is_answered() {
        let (at, _serving) = serving();
        let (first, answer) = ask(at, "GET /metrics?of=all");
        assert_eq!(first, "HTTP/1.1 200 OK");
        assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
        assert!(answer.contains("\nisometry_copies_in_flight{node=\"node0\"} 0\n"), "{answer}");
        for path in ["/", "/metrics/", "/metricsx", "/../metrics"] {
            let (first, _) = ask(at, &format!("GET {path}"));
            assert_eq!(first, "HTTP/1.1 404 Not Found", "{path}");
        }
        for method in ["POST", "HEAD", "DELETE", "ODD"] {
            let (first, answer) = ask(at, &format!("{method} /metrics"));
            assert_eq!(first, "HTTP/1.1 405 Method Not Allowed", "{method}");
            assert!(answer.contains("allow: GET"), "{answer}");
        }
    }

    #[test]
    fn whoever_is_silent_or_talks_nonsense_holds_nobody_up() {
        let (at, serving) = serving();
        // More than may ask at once, some in the middle of a word.
        let silent: Vec<_> = (0..2 * MOST_CLIENTS).map(|_| connect(at)).collect();
        silent.iter().step_by(2).for_each(|mut stream| stream.write_all(b"GET /met").unwrap());
        assert_eq!(ask(at, "GET /metrics").0, "HTTP/1.1 200 OK");
        assert_eq!(ask(at, "\u{0}\r\n{").0, "HTTP/1.1 400 Bad Request");
        let endless = "x".repeat(MOST_BYTES * 2);
        let mut stream = connect(at);
        // It may be cut off in the middle.
        let _ = write!(stream, "GET /{endless}");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 2"), "{}", String::from_utf8_lossy(&answer));
        assert_eq!(ask(at, "GET /metrics").0, "HTTP/1.1 200 OK");
        // The oldest had to go, and who is connected is cut off at the end.
        assert!(matches!((&silent[0]).read(&mut [0]), Ok(0) | Err(_)));
        drop(serving);
        assert!(matches!((&silent[2 * MOST_CLIENTS - 1]).read(&mut [0]), Ok(0) | Err(_)));
    }

    #[test]
    fn an_address_that_can_t_be_is_named() {
        let failure = |at| Port::listen(at).err();
        assert!(matches!(failure("here"), Some(Failure::Usage(why)) if why.contains("here")));
        let (at, _serving) = serving();
        let taken = failure(&at.to_string());
        assert!(matches!(taken, Some(Failure::Failed(why)) if why.contains(&at.to_string())));
    }
}
