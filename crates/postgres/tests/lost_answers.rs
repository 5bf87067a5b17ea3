//! The connection is lost at the worst moment: what was asked has been done, or has not, and nobody
//! says which. It is done once, and the caller is told that it is.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use common::*;
use dalsegno_contract::world::{block_on, event};
use dalsegno_pgtest::Server;
use dalsegno_store::mailbox::NewLetter;
use dalsegno_store::{Append, Kind, NewEvent, Recorded, Store, StreamId};

/// In what a request must have to be the one whose answer is lost.
const MARK: &str = "the-marked-one";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// The request never arrives.
    OfTheRequest,
    /// It is done, and nobody hears of it.
    OfTheAnswer,
    /// The client is cut off, and the request arrives when that one has looked for it.
    Late,
}

/// What to do with the next request that has the mark.
struct Trap {
    loss: Loss,
    /// Something has come back from the server.
    done: Sender<()>,
    /// Then the connection is cut.
    cut: Receiver<()>,
}

/// Stands between a store and its server.
struct Between {
    port: u16,
    trap: Arc<Mutex<Option<Trap>>>,
}

impl Between {
    fn new(server: &Server) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let trap: Arc<Mutex<Option<Trap>>> = Arc::default();
        let (to, armed) = (server.port(), Arc::clone(&trap));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let server = TcpStream::connect(("127.0.0.1", to)).unwrap();
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                let armed = Arc::clone(&armed);
                std::thread::spawn(move || carry(client, server, &armed));
            }
        });
        Between { port, trap }
    }

    /// Sets the trap.
    fn lose(&self, loss: Loss) -> (Receiver<()>, Sender<()>) {
        let (done, is_done) = channel();
        let (go, cut) = channel();
        *self.trap.lock().unwrap() = Some(Trap { loss, done, cut });
        (is_done, go)
    }
}

fn carry(mut client: TcpStream, mut server: TcpStream, armed: &Mutex<Option<Trap>>) {
    let silent = Arc::new(Mutex::new(None::<Sender<()>>));
    let (mut from, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let says_nothing = Arc::clone(&silent);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            match &*says_nothing.lock().unwrap() {
                Some(done) => drop(done.send(())),
                None => drop(back.write_all(&buffer[..count])),
            }
        }
        drop(back.shutdown(Shutdown::Both));
    });
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = client.read(&mut buffer) {
        let request = &buffer[..count];
        let is_marked = request
            .windows(MARK.len())
            .any(|part| part == MARK.as_bytes());
        let trap = is_marked.then(|| armed.lock().unwrap().take()).flatten();
        let Some(trap) = trap else {
            if server.write_all(request).is_err() {
                break;
            }
            continue;
        };
        *silent.lock().unwrap() = Some(trap.done.clone());
        match trap.loss {
            Loss::OfTheAnswer => server.write_all(request).unwrap(),
            Loss::OfTheRequest => trap.done.send(()).unwrap(),
            Loss::Late => {
                client.shutdown(Shutdown::Both).unwrap();
                trap.done.send(()).unwrap();
                trap.cut.recv().unwrap();
                server.write_all(request).unwrap();
                return;
            }
        }
        trap.cut.recv().unwrap();
        break;
    }
    drop(client.shutdown(Shutdown::Both));
    drop(server.shutdown(Shutdown::Both));
}

fn marked(kind: Kind) -> NewEvent {
    event(kind).with_output(dalsegno_store::NewPayload::json(MARK))
}

fn is_marked(recorded: &Recorded) -> bool {
    let bytes = recorded.event.encode();
    bytes
        .windows(MARK.len())
        .any(|part| part == MARK.as_bytes())
}

/// Does something through a connection that is lost, and `meanwhile` before it is cut; how often it is
/// in the stream then, when all letters are taken.
fn how_often(
    loss: Loss,
    name: &str,
    ask: impl FnOnce(&dyn Store, &StreamId) + Send,
    meanwhile: impl FnOnce(&dyn Store, &StreamId),
) -> usize {
    let server = Server::shared();
    let url = server.url();
    let between = Between::new(&server);
    let through = url.replace(&server.port().to_string(), &between.port.to_string());
    let (store, other) = (open(&through), open(&url));
    let stream = create(&store, name);
    std::thread::scope(|scope| {
        let (is_done, go) = between.lose(loss);
        let (store, stream_ref) = (&store, &stream);
        let asked = scope.spawn(move || ask(store, stream_ref));
        is_done.recv().unwrap();
        meanwhile(&other, &stream);
        go.send(()).unwrap();
        asked.join().unwrap();
    });
    block_on(other.take_letters()).unwrap();
    all(&other, &stream).iter().filter(|e| is_marked(e)).count()
}

const BOTH: [Loss; 2] = [Loss::OfTheRequest, Loss::OfTheAnswer];

fn send(store: &dyn Store, to: &StreamId) {
    let mut letter = NewLetter::new(to.clone(), Kind::SignalReceived, 0);
    letter.payload = Some(("application/json".into(), MARK.into()));
    block_on(store.send(&letter)).unwrap();
}

#[test]
fn a_letter_is_sent_once() {
    for loss in BOTH {
        assert_eq!(how_often(loss, "order", send, |_, _| {}), 1, "{loss:?}");
    }
}

#[test]
fn a_letter_that_was_taken_up_before_the_loss_was_noticed_is_not_sent_again() {
    let take = |other: &dyn Store, _: &StreamId| {
        let taken = block_on(other.take_letters()).unwrap().taken;
        assert_eq!(taken.len(), 1);
    };
    assert_eq!(how_often(Loss::OfTheAnswer, "order", send, take), 1);
}

#[test]
fn an_append_is_done_once() {
    let append = |store: &dyn Store, to: &StreamId| {
        let append = Append::to(to.clone(), vec![marked(Kind::SignalReceived)]);
        block_on(store.append(vec![append])).unwrap();
    };
    for loss in BOTH {
        assert_eq!(how_often(loss, "order", append, |_, _| {}), 1, "{loss:?}");
    }
}

#[test]
fn an_append_to_a_held_run_is_done_once() {
    let append = |store: &dyn Store, to: &StreamId| {
        let token = block_on(store.take_lease(to, "worker", 600 * SECOND_US));
        let token = token.unwrap().token;
        // The connection is made, so that who waits sends it.
        for event in [event(Kind::RunStarted), marked(Kind::SignalReceived)] {
            let append = Append::to(to.clone(), vec![event]).under(token);
            let appended = block_on(store.append(vec![append])).unwrap();
            block_on(store.durable(appended.position)).unwrap();
        }
        block_on(store.hand_over_lease(to, token)).unwrap();
    };
    for loss in BOTH {
        assert_eq!(how_often(loss, "order", append, |_, _| {}), 1, "{loss:?}");
    }
}

/// What is appended to a run that another holds becomes a letter in a transaction of its own.
#[test]
fn an_append_to_a_run_that_another_holds_is_done_once() {
    for loss in BOTH {
        let server = Server::shared();
        let url = server.url();
        let between = Between::new(&server);
        let through = url.replace(&server.port().to_string(), &between.port.to_string());
        let (store, holder) = (open(&through), open(&url));
        let order = create(&store, "order");
        let token = take(&holder, &order, "holder", 600 * SECOND_US);
        std::thread::scope(|scope| {
            let (is_done, go) = between.lose(loss);
            let asked = scope.spawn(|| {
                let append = Append::to(order.clone(), vec![marked(Kind::SignalReceived)]);
                block_on(store.append(vec![append])).unwrap();
            });
            is_done.recv().unwrap();
            go.send(()).unwrap();
            asked.join().unwrap();
        });
        block_on(holder.take_letters()).unwrap();
        let events = all(&holder, &order);
        assert_eq!(
            events.iter().filter(|e| is_marked(e)).count(),
            1,
            "{loss:?}"
        );
        block_on(holder.release_lease(&order, token)).unwrap();
    }
}

/// A server may have all of a request, and be so slow that its client has given up and looked for it on
/// another connection before it begins.
#[test]
fn an_append_to_a_run_that_another_holds_is_done_once_also_if_the_server_is_slow() {
    let server = Server::shared();
    let url = server.url();
    let between = Between::new(&server);
    let through = url.replace(&server.port().to_string(), &between.port.to_string());
    let (store, holder) = (open(&through), open(&url));
    let order = create(&store, "order");
    take(&holder, &order, "holder", 600 * SECOND_US);
    std::thread::scope(|scope| {
        let (is_done, go) = between.lose(Loss::Late);
        let (ends, ended) = channel();
        let (store, to) = (&store, &order);
        scope.spawn(move || {
            let append = Append::to(to.clone(), vec![marked(Kind::SignalReceived)]);
            block_on(store.append(vec![append])).unwrap();
            ends.send(()).unwrap();
        });
        is_done.recv().unwrap();
        // It must not come to an end before it is known what became of the first try.
        let early = ended.recv_timeout(std::time::Duration::from_secs(1));
        go.send(()).unwrap();
        is_done.recv().unwrap();
        early.or_else(|_| ended.recv()).unwrap();
    });
    block_on(holder.take_letters()).unwrap();
    let events = all(&holder, &order);
    assert_eq!(events.iter().filter(|e| is_marked(e)).count(), 1);
}

/// Who waits for an append, sends it and goes away leaves it to others.
#[test]
fn an_append_whose_waiter_goes_away_is_sent() {
    let server = Server::shared();
    let url = server.url();
    let store = open(&url);
    let order = create(&store, "order");
    let token = take(&store, &order, "worker", 600 * SECOND_US);
    append_under(&store, &order, token, event(Kind::RunStarted)).unwrap();
    for number in 0..50 {
        block_on(async {
            let append = Append::to(order.clone(), vec![marked(Kind::SignalReceived)]);
            let appended = store.append(vec![append.under(token)]).await.unwrap();
            let mut durable = store.durable(appended.position);
            // Once, and never again.
            let polled = std::future::poll_fn(|context| {
                std::task::Poll::Ready(durable.as_mut().poll(context))
            });
            drop(polled.await);
            drop(durable);
            if number % 2 == 0 {
                store.durable(appended.position).await.unwrap();
            }
        });
    }
    store.close().unwrap();
    let events = all(&open(&url), &order);
    assert_eq!(events.iter().filter(|e| is_marked(e)).count(), 50);
}
