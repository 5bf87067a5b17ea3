//! As much of HTTP/1.1 as the story needs: one request for each connection, bodies with a length.
//!
//! Invariant: a [`Sent::Never`] error means that the other side cannot have seen a whole request;
//! every other error leaves that open.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longer heads and bodies are refused.
const LIMIT_BYTES: u64 = 1 << 20;
/// Nobody in the story takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// As in `GET`.
    pub method: String,
    /// With the query, as in `/wait?arrivals=3`.
    pub path: String,
    /// By their names in lower case.
    pub headers: BTreeMap<String, String>,
    /// What is in it.
    pub body: Vec<u8>,
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// As in 200.
    pub status: u16,
    /// What is in it.
    pub body: Vec<u8>,
}

/// What is known about a request that got no reply.
#[derive(Debug)]
pub enum Sent {
    /// It never left: there was no connection.
    Never(Error),
    /// It may have arrived.
    Maybe(Error),
}

impl std::fmt::Display for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Sent::Never(e) => write!(f, "no connection: {e}"),
            Sent::Maybe(e) => write!(f, "no reply: {e}"),
        }
    }
}

impl std::error::Error for Sent {}

impl Request {
    /// A request without a body.
    pub fn get(path: impl Into<String>) -> Request {
        Request {
            method: "GET".into(),
            path: path.into(),
            ..Request::default()
        }
    }

    /// A request with a body.
    pub fn post(path: impl Into<String>, body: impl Into<Vec<u8>>) -> Request {
        Request {
            method: "POST".into(),
            path: path.into(),
            body: body.into(),
            ..Request::default()
        }
    }

    /// With a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Request {
        self.headers
            .insert(name.to_ascii_lowercase(), value.to_owned());
        self
    }

    /// A header, or nothing.
    pub fn get_header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Sends it, and waits for the reply.
    ///
    /// # Errors
    /// There was no reply.
    pub fn send(&self, to: &str) -> std::result::Result<Reply, Sent> {
        let mut stream = TcpStream::connect(to).map_err(Sent::Never)?;
        let mut talk = || -> Result<Reply> {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_nodelay(true)?;
            // In one write: who is killed has sent it or has not.
            stream.write_all(&self.bytes())?;
            Reply::read(&mut BufReader::new(&stream))
        };
        talk().map_err(Sent::Maybe)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        head += "host: world\r\nconnection: close\r\n";
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("content-length: {}\r\n\r\n", self.body.len());
        let mut bytes = head.into_bytes();
        bytes.extend(&self.body);
        bytes
    }

    /// Reads one; an error also if it ends before its end.
    ///
    /// # Errors
    /// It is not whole, too long, or not HTTP.
    pub fn read(from: &mut impl BufRead) -> Result<Request> {
        let (first, headers, body) = read_message(from)?;
        let mut words = first.split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some(method), Some(path), Some("HTTP/1.1")) => Ok(Request {
                method: method.to_owned(),
                path: path.to_owned(),
                headers,
                body,
            }),
            _ => Err(malformed(&first)),
        }
    }
}

impl Reply {
    /// With a status and a text.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Reply {
        Reply {
            status,
            body: body.into(),
        }
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn read(from: &mut impl BufRead) -> Result<Reply> {
        let (first, _, body) = read_message(from)?;
        let status = first.split(' ').nth(1).and_then(|word| word.parse().ok());
        match status {
            Some(status) => Ok(Reply { status, body }),
            None => Err(malformed(&first)),
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// The other side is gone.
    pub fn write(&self, to: &mut impl Write) -> Result<()> {
        let (status, length) = (self.status, self.body.len());
        let head =
            format!("HTTP/1.1 {status} \r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend(&self.body);
        to.write_all(&bytes)
    }
}

fn malformed(line: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("not HTTP/1.1: {line:?}"))
}

/// The first line, the headers and the body.
fn read_message(from: &mut impl BufRead) -> Result<(String, BTreeMap<String, String>, Vec<u8>)> {
    let mut head = from.take(LIMIT_BYTES);
    let first = read_line(&mut head)?;
    let mut headers = BTreeMap::new();
    loop {
        let line = read_line(&mut head)?;
        if line.is_empty() {
            break;
        }
        let Some((name, value)) = line.split_once(':') else {
            return Err(malformed(&line));
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or("0", String::as_str);
    let length: u64 = length.parse().map_err(|_| malformed(length))?;
    if length > LIMIT_BYTES {
        return Err(malformed("a body that is too long"));
    }
    let mut body = vec![0; length as usize];
    from.read_exact(&mut body)?;
    Ok((first, headers, body))
}

fn read_line(from: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(line) => Ok(line.to_owned()),
        None => Err(ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written_and_only_if_it_is_whole() {
        let request = Request::post("/bookings", "a body").header("Idempotency-Key", "k");
        let bytes = request.bytes();
        let read = Request::read(&mut &bytes[..]).map(|read| (read.body, read.path));
        assert_eq!(read.ok(), Some((b"a body".to_vec(), "/bookings".into())));
        for length in 0..bytes.len() {
            assert!(Request::read(&mut &bytes[..length]).is_err(), "{length}");
        }
    }
}
