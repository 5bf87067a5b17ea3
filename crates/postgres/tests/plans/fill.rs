//! A store with many runs, made by the server itself in seconds.
//!
//! Of 1000 runs: 400 completed, 50 failed, 50 cancelled, 400 wait with a timer, 98 are ready, 2 need
//! attention. The last fifth, by name and by time, is of the agent `late`: who looks for its runs by
//! going through all does not find them soon. Half of the others are of `cook`, the rest of 100
//! agents.

use dalsegno_pgtest::Server;

pub fn fill(server: &Server, url: &str, runs: u64) {
    server.sql(url, &streams(runs));
    for sql in OTHERS {
        server.sql(url, sql);
    }
}

/// Copies of one run, whose state reads as any.
fn streams(runs: u64) -> String {
    format!(
        "INSERT INTO stream (kind, name, sequence, clock, token, state)
         SELECT 1, 'w' || lpad(g::text, 8, '0'), t.sequence, t.clock, t.token, t.state
         FROM (SELECT * FROM stream WHERE name = 'template') t, generate_series(1, {runs}) g;
         INSERT INTO stream (kind, name, sequence, clock, token, state)
         SELECT 2, 'm' || g, t.sequence, t.clock, t.token, t.state
         FROM (SELECT * FROM stream WHERE name = 'template') t, generate_series(1, {runs} / 10) g"
    )
}

const OTHERS: [&str; 6] = [
    "INSERT INTO event (stream, sequence, bytes, hash)
     SELECT s.no, g, convert_to(repeat('x', 300), 'UTF8'), convert_to(repeat('h', 32), 'UTF8')
     FROM stream s, generate_series(1, 2) g WHERE s.name LIKE 'w%'",
    "INSERT INTO run (stream, name, status, agent, attention, changed_us)
     SELECT no, name,
         CASE WHEN no % 100 < 40 THEN 3 WHEN no % 100 < 45 THEN 4 WHEN no % 100 < 50 THEN 5
              WHEN no % 100 < 90 THEN 2 ELSE 0 END,
         CASE WHEN no > (SELECT max(no) * 8 / 10 FROM stream WHERE kind = 1) THEN 'late'
              WHEN no % 2 = 0 THEN 'cook' ELSE 'a' || (no / 2 % 100) END,
         no % 1000 >= 998, 1700000000000000 - no
     FROM stream WHERE name LIKE 'w%'",
    "INSERT INTO claimable (stream, queue, priority, agent, ready_us)
     SELECT stream, CASE WHEN stream % 7 = 0 THEN 'slow' ELSE '' END, stream / 3 % 3, agent,
         CASE WHEN status = 0 AND NOT attention THEN 1700000000000000
              ELSE 9223372036854775807 END
     FROM run WHERE name LIKE 'w%' AND status < 3",
    "INSERT INTO timer (stream, id, due_us)
     SELECT stream, 't', 4000000000000000 + stream FROM run WHERE name LIKE 'w%' AND status = 2",
    "INSERT INTO piece (hash, bytes, touched_us)
     SELECT sha256(int8send(no)), '', 1 FROM stream WHERE name LIKE 'w%' AND no % 10 = 0",
    "INSERT INTO letter (sender, number, kind, name, form, bytes, bad)
     SELECT 'nobody', no, kind, name, 1, '', 'for this test' FROM stream WHERE name LIKE 'w%' AND no % 5 = 0",
];
