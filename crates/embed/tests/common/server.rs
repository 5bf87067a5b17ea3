//! An HTTP server that says what the test tells it to.

#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};

/// What the client sent.
pub struct Request {
    pub head: String,
    pub body: serde_json::Value,
}

/// Answers one connection after another, each by the next of its answers.
pub struct Server {
    pub url: String,
    requests: Receiver<Request>,
    /// Silent connections stay open until this goes.
    _open: Sender<()>,
}

impl Server {
    pub fn new(answers: Vec<Vec<u8>>) -> Server {
        Server::start(answers, false)
    }

    /// Falls silent after what it says, and does not hang up.
    pub fn silent(answer: Vec<u8>) -> Server {
        Server::start(vec![answer], true)
    }

    fn start(answers: Vec<Vec<u8>>, stay_open: bool) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (sender, requests) = channel();
        let (open, closed) = channel::<()>();
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                sender.send(read(&stream)).ok();
                // The client may hang up before it has read everything.
                stream.write_all(&answer).ok();
                if stay_open {
                    kept.push(stream);
                }
            }
            closed.recv().ok();
        });
        Server {
            url,
            requests,
            _open: open,
        }
    }

    /// The next request that was sent.
    pub fn request(&self) -> Request {
        self.requests.recv().unwrap()
    }

    /// No more requests were sent.
    pub fn is_done(&self) -> bool {
        self.requests.try_recv().is_err()
    }
}

fn read(stream: &TcpStream) -> Request {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while reader.read_line(&mut head).unwrap() > 2 {}
    let length = head
        .lines()
        .find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("content-length:")?
                .trim()
                .parse()
                .ok()
        })
        .unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    Request {
        head,
        body: serde_json::from_slice(&body).unwrap(),
    }
}

pub fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

pub fn ok(body: &str) -> Vec<u8> {
    answer("200 OK", "content-type: application/json\r\n", body)
}

/// A good answer with these vectors, each with its index.
pub fn vectors(vectors: &[(usize, &[f64])]) -> Vec<u8> {
    let data: Vec<_> = vectors
        .iter()
        .map(|(index, numbers)| serde_json::json!({"index": index, "embedding": numbers}))
        .collect();
    ok(&serde_json::json!({"object": "list", "data": data, "model": "m"}).to_string())
}
