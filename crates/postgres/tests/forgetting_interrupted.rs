//! Forgetting that was interrupted: of a payload all is gone or nothing, and who forgets again finds
//! what is left.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::*;
use dalsegno_contract::world::{block_on, event};
use dalsegno_pgtest::Server;
use dalsegno_store::engine::FORGOTTEN;
use dalsegno_store::{Append, Fields, Kind, NewPayload, Store, StreamId, Value};

/// More pieces than one statement removes.
const PAYLOADS: u64 = 3;
const BYTES: usize = 700_000;

/// From the second statement on that removes pieces, the server refuses: so much is there as if the
/// process had ended behind the first.
const ENDS: &str = "
    CREATE SEQUENCE removals;
    CREATE FUNCTION ends() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF nextval('removals') > 1 THEN RAISE EXCEPTION 'the process ends here'; END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER ends BEFORE DELETE ON piece FOR EACH STATEMENT EXECUTE FUNCTION ends()";

/// Bytes of which no two pieces are the same.
fn noise(seed: u64) -> Vec<u8> {
    let mut last = seed + 1;
    let mut next = || {
        last = last.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (last >> 56) as u8
    };
    (0..BYTES).map(|_| next()).collect()
}

#[test]
fn of_a_payload_all_pieces_go_or_none() {
    let server = Server::shared();
    let notes = StreamId::memory("notes").unwrap();
    // In which order pieces are removed is left to chance.
    for round in 0..6 {
        let url = server.url();
        let store = open(&url);
        for number in 0..PAYLOADS {
            let content = noise(10 * round + number);
            let payload = NewPayload::new("x/y", content).apart();
            let fact = event(Kind::FactConfirmed).with_input(payload);
            block_on(store.append(vec![Append::to(notes.clone(), vec![fact])])).unwrap();
        }
        let all = (1..=PAYLOADS).map(Value::Number).collect();
        let fields = Fields::new().with(FORGOTTEN, Value::List(all));
        let forgotten = event(Kind::MemoryForgotten).with_fields(fields);
        let append = Append::to(notes.clone(), vec![forgotten]);
        block_on(store.append(vec![append])).unwrap();
        let pieces = || server.number(&url, "SELECT count(*) FROM piece");
        let before = pieces();
        server.sql(&url, ENDS);
        block_on(store.erase_forgotten(&notes, PAYLOADS + 1)).unwrap_err();
        drop(store);
        let left = pieces();
        assert!(0 < left && left < before, "{left} of {before} are left");

        server.sql(&url, "DROP TRIGGER ends ON piece");
        let erased = block_on(open(&url).erase_forgotten(&notes, PAYLOADS + 1));
        assert_eq!((erased.unwrap(), pieces()), (left, 0), "round {round}");
    }
}
