//! The embedder over HTTP, against a real server on this machine that answers well and badly.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/server.rs"]
mod server;

use std::time::Duration;

use common::says;
use dalsegno_embed::{EmbedError, Embedder, HttpEmbedder, HttpOptions, Vector};
use server::*;

const KEY: &str = "sk-very-secret";

fn options(server: &Server) -> HttpOptions {
    HttpOptions::new(&server.url, "small", 4).api_key(KEY)
}

fn ask(answers: Vec<Vec<u8>>, texts: &[&str]) -> Result<Vec<Vector>, EmbedError> {
    let server = Server::new(answers);
    HttpEmbedder::new(options(&server)).unwrap().embed(texts)
}

/// An answer leads to an error that has these words, and may or may not pass by itself.
fn fails(answer: Vec<u8>, words: &[&str], temporary: bool) {
    let result = ask(vec![answer], &["a", "b"]);
    assert_eq!(
        result.as_ref().unwrap_err().is_temporary(),
        temporary,
        "{result:?}"
    );
    assert!(
        !format!("{result:?}").contains(KEY),
        "the key is in: {result:?}"
    );
    says(result, words);
}

const A: &[f64] = &[1.0, 0.0, 0.0, 0.0];
const B: &[f64] = &[3.0, 0.0, -4.0, 100.0];

#[test]
fn texts_are_sent_and_vectors_come_back_in_their_order() {
    let server = Server::new(vec![vectors(&[(1, B), (0, A)])]);
    let embedder = HttpEmbedder::new(options(&server)).unwrap();
    let found = embedder.embed(&["a", "b\n\"c\""]).unwrap();
    assert_eq!(found[0].as_slice(), [127, 0, 0, 0]);
    assert_eq!(found[1].as_slice(), [15, 0, -20, 127]);
    let request = server.request();
    assert!(
        request.head.starts_with("POST /v1/embeddings HTTP/1.1\r\n"),
        "{}",
        request.head
    );
    assert!(
        request
            .head
            .contains("authorization: Bearer sk-very-secret\r\n"),
        "{}",
        request.head
    );
    let body = serde_json::json!({
        "model": "small", "input": ["a", "b\n\"c\""], "encoding_format": "float",
    });
    assert_eq!(request.body, body);
}

#[test]
fn an_answer_without_indices_is_in_order() {
    let body = r#"{"data":[{"embedding":[1,0,0,0]},{"embedding":[0,-1,0,0.0]}]}"#;
    let found = ask(vec![ok(body)], &["a", "b"]).unwrap();
    assert_eq!(found[1].as_slice(), [0, -127, 0, 0]);
}

#[test]
fn many_texts_are_sent_in_batches_and_blank_ones_not_at_all() {
    let server = Server::new(vec![vectors(&[(0, A), (1, A)]), vectors(&[(0, B)])]);
    let embedder = HttpEmbedder::new(options(&server).batch_texts(2)).unwrap();
    let found = embedder.embed(&["", "a", " \n", "b", "c"]).unwrap();
    assert!(found[0].is_zero() && found[2].is_zero() && found[0].dimensions() == 4);
    assert_eq!(found[3].as_slice(), [127, 0, 0, 0]);
    assert_eq!(found[4].as_slice(), [15, 0, -20, 127]);
    assert_eq!(
        server.request().body["input"],
        serde_json::json!(["a", "b"])
    );
    assert_eq!(server.request().body["input"], serde_json::json!(["c"]));
    assert!(
        embedder
            .embed(&["", "\t"])
            .unwrap()
            .iter()
            .all(Vector::is_zero)
    );
    assert!(embedder.embed(&[]).unwrap().is_empty());
    assert!(server.is_done());
}

#[test]
fn a_long_text_is_cut_to_what_the_limit_says() {
    let server = Server::new(vec![vectors(&[(0, A)])]);
    let embedder =
        HttpEmbedder::new(options(&server).text_bytes_max(1000).send_dimensions()).unwrap();
    assert_eq!(embedder.limit().bytes, 1000);
    embedder.embed(&[&"é".repeat(1 << 19)]).unwrap();
    let body = server.request().body;
    assert_eq!(body["input"][0].as_str().unwrap(), "é".repeat(500));
    assert_eq!(body["dimensions"], 4);
}

#[test]
fn refusals_are_reported_with_what_the_server_says() {
    let long = format!("slow down, {KEY}!\n{}", "x".repeat(10_000));
    let busy = answer("429 Too Many Requests", "retry-after: 7\r\n", &long);
    fails(
        busy,
        &[
            "status 429",
            "slow down, [API key]!",
            "…",
            "try again in 7 s",
            "/v1/embeddings",
        ],
        true,
    );
    let later = answer(
        "503 Unavailable",
        "retry-after: Fri, 31 Dec 1999 23:59:59 GMT\r\n",
        "",
    );
    fails(
        later,
        &["status 503", "(nothing more)", "try again later"],
        true,
    );
    fails(
        answer("500 Internal Server Error", "", "oops"),
        &["status 500: oops"],
        true,
    );
    fails(
        answer("401 Unauthorized", "", "{}"),
        &["status 401", "check the API key"],
        false,
    );
    fails(
        answer("404 Not Found", "", "no"),
        &["status 404", "/v1"],
        false,
    );
    fails(
        answer("400 Bad Request", "", "too long"),
        &["status 400: too long"],
        false,
    );
    fails(answer("204 No Content", "", ""), &["status 204"], false);
    let elsewhere = answer(
        "307 Temporary Redirect",
        "location: http://127.0.0.1:1/\r\n",
        "",
    );
    fails(elsewhere, &["status 307", "give the address"], false);
}

#[test]
fn wrong_answers_are_refused() {
    let dimension: &[f64] = &[1.0, 2.0, 3.0];
    fails(vectors(&[(0, A)]), &["1 vectors for 2 texts"], false);
    fails(
        vectors(&[(0, A), (1, A), (2, A)]),
        &["3 vectors for 2 texts"],
        false,
    );
    fails(
        vectors(&[(0, A), (1, dimension)]),
        &["3 components, not of 4"],
        false,
    );
    fails(vectors(&[(0, A), (0, A)]), &["an index comes twice"], false);
    fails(vectors(&[(0, A), (2, A)]), &["index 2 of 2"], false);
    for body in [
        "",
        "{",
        "[]",
        "{}",
        "<html>no</html>",
        r#"{"data": 7}"#,
        r#"{"data":[{"index":0}]}"#,
    ] {
        fails(
            ok(body),
            &[
                "not an answer of the embeddings API",
                "mostly ends with /v1",
            ],
            false,
        );
    }
    let nan = r#"{"data":[{"embedding":[NaN,0,0,0]},{"embedding":[1,0,0,0]}]}"#;
    fails(ok(nan), &["not an answer"], false);
    let text = format!(
        r#"{{"data":[{{"embedding":"{KEY}{}"}}]}}"#,
        "A".repeat(5000)
    );
    fails(ok(&text), &["not an answer", "invalid type: string"], false);
    fails(ok(&"[".repeat(50_000)), &["not an answer"], false);
}

#[test]
fn what_is_not_a_number_is_named() {
    let null = r#"{"data":[{"embedding":[1,0,0,0]},{"embedding":[1,0,null,0]}]}"#;
    fails(
        ok(null),
        &["component 2 of the vector of text 1 is not a number"],
        false,
    );
    let huge = r#"{"data":[{"embedding":[1,0,0,1e39]},{"embedding":[1,0,0,0]}]}"#;
    fails(ok(huge), &["component 3 of the vector of text 0"], false);
    // The place is that in the call, not in the request.
    let server = Server::new(vec![ok(null)]);
    let embedder = HttpEmbedder::new(options(&server)).unwrap();
    says(embedder.embed(&["", "a", "", "b"]), &["of text 3"]);
}

#[test]
fn connections_that_break_are_reported() {
    let cut = vectors(&[(0, A), (1, A)]);
    fails(cut[..cut.len() - 10].to_vec(), &["try again"], true); // Within the body.
    fails(cut[..20].to_vec(), &["try again"], true); // Within the head.
    fails(b"\r\n".to_vec(), &["try again"], true);
    fails(
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec(),
        &["check that the server runs"],
        true,
    );
    let nobody = HttpOptions::new("http://127.0.0.1:1", "small", 4);
    let result = HttpEmbedder::new(nobody).unwrap().embed(&["a"]);
    assert!(result.as_ref().unwrap_err().is_temporary());
    says(result, &["http://127.0.0.1:1/embeddings", "refused"]);
}

#[test]
fn slow_servers_are_not_waited_for() {
    let whole = vectors(&[(0, A)]);
    for said in [0, 20, whole.len() - 10] {
        let server = Server::silent(whole[..said].to_vec());
        let options = options(&server).timeout(Duration::from_millis(200));
        let result = HttpEmbedder::new(options).unwrap().embed(&["a"]);
        assert!(
            matches!(result, Err(EmbedError::Timeout { .. })),
            "{result:?}"
        );
        assert!(result.as_ref().unwrap_err().is_temporary());
        says(result, &["no answer within 200ms"]);
    }
}

#[test]
fn huge_answers_are_not_read() {
    let limit = (64 << 10) + 2 * 1024 + 2 * 4 * 48;
    let words = [format!("larger than {limit} bytes")];
    fails(ok(&" ".repeat(limit + 1)), &[&words[0]], false);
    // Without a length, as long as the server likes to send.
    let endless = [b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), &vec![b' '; 10 << 20]].concat();
    fails(endless, &[&words[0]], false);
    let long_head = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(1 << 20));
    fails(long_head.into_bytes(), &["try again"], true);
}

#[test]
fn wrong_options_are_refused_before_anything_is_sent() {
    let new = |url: &str| HttpOptions::new(url, "small", 4);
    let good = || new("http://localhost/v1");
    let cases: Vec<(HttpOptions, &[&str])> = vec![
        (new(""), &["address", "http://localhost:11434/v1"]),
        (new("localhost:80"), &["address"]),
        (new("ftp://localhost"), &["http:// or https://"]),
        (
            new("http://user:pass@localhost/v1"),
            &["give a key as the API key"],
        ),
        (new("http://localhost/v1?key=pass"), &["query"]),
        (new("http://local host/"), &["cannot be read"]),
        (
            HttpOptions::new("http://localhost", "", 4),
            &["model has no name"],
        ),
        (
            HttpOptions::new("http://localhost", "small", 0),
            &["dimensions"],
        ),
        (
            HttpOptions::new("http://localhost", "small", 65_537),
            &["dimensions"],
        ),
        (good().batch_texts(0), &["batch"]),
        (good().text_bytes_max(0), &["texts"]),
        (good().timeout(Duration::ZERO), &["timeout"]),
        (good().api_key("pass\nword"), &["API key"]),
        (good().api_key(""), &["API key"]),
    ];
    for (options, words) in cases {
        let result = HttpEmbedder::new(options);
        assert!(!format!("{result:?}").contains("pass"), "{result:?}");
        says(result, words);
    }
}

#[test]
fn the_key_is_never_shown_and_the_id_has_what_decides() {
    let embedder = |options: HttpOptions| HttpEmbedder::new(options).unwrap();
    let options = HttpOptions::new("http://localhost/v1/", "small", 4).api_key(KEY);
    let shown = format!("{options:?} {:?}", embedder(options.clone()));
    assert!(
        shown.contains("[API key]") && !shown.contains("secret"),
        "{shown}"
    );
    let id = embedder(options.clone()).id().clone();
    assert_eq!(id.name(), "small");
    let other_place = HttpOptions::new("http://127.0.0.1:1", "small", 4).batch_texts(1);
    assert_eq!(&id, embedder(other_place).id());
    assert_ne!(&id, embedder(options.revision("2")).id());
}
