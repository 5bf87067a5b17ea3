//! `dalsegno worker`: runs that were started, executed by commands.

#![allow(clippy::unwrap_used)]

mod common;
mod workers;

use common::TempDir;
use workers::{EFFECT, Workers};

#[test]
fn two_agents_finish_all_runs_and_every_effect_happens_once() {
    let workers = Workers::new();
    let step = |name: &str, effect: &str| {
        format!(
            "dalsegno step --name {name} --effect {effect} -- sh -c '{EFFECT}; echo {name} of $DALSEGNO_RUN'"
        )
    };
    let pay = format!(
        "{}\n{}\necho paid",
        step("reserve", "idempotent"),
        step("pay", "once")
    );
    let mail = format!(
        "{} > /dev/null\ncat | sed 's/^/{{\"input\": /; s/$/}}/'",
        step("send", "once")
    );
    for n in 0..20 {
        let agent = ["pay", "mail"][n % 2];
        let (run, input) = (format!("{agent} {n}"), format!("{{\"n\": {n}}}"));
        workers.run(&["start", agent, &run, "--input", &input]).ok();
    }
    let agents = [workers.agent("pay", &pay), workers.agent("mail", &mail)];
    let args = ["--agent", &agents[0], "--agent", &agents[1]];
    let worker = workers.worker(&args);
    for n in 0..20 {
        let run = format!("{} {n}", ["pay", "mail"][n % 2]);
        let shown = workers.until_is(&run, "completed");
        let wanted = match n % 2 {
            0 => serde_json::json!("reserve of RUN\npay of RUN\npaid".replace("RUN", &run)),
            _ => serde_json::json!({ "input": { "n": n } }),
        };
        assert_eq!(shown["result"], wanted, "{shown:#}");
    }
    let effects = workers.effects();
    assert_eq!(effects.len(), 30);
    assert!(effects.iter().all(|(_, times)| *times == 1), "{effects:?}");
    for n in [0, 1] {
        let run = format!("{} {n}", ["pay", "mail"][n]);
        assert_eq!(worker.said("claimed", Some(&run)).len(), 1);
        assert_eq!(worker.said("ended", Some(&run))[0]["exit"], 0);
    }
    workers.run(&["verify"]).ok();
}

#[test]
fn what_a_command_comes_to() {
    let workers = Workers::new();
    let agents = [
        workers.agent("nothing", "true"),
        workers.agent("text", "echo two; echo lines"),
        workers.agent("json", "echo \"[1, $DALSEGNO_INPUT]\""),
        workers.agent(
            "says",
            "dalsegno end --result 'it is done'; echo ignored; exit 9",
        ),
        workers.agent("fails", "dalsegno end --fail 'the report was empty'"),
        workers.agent(
            "knows",
            "echo \"$DALSEGNO_RUN $DALSEGNO_AGENT $#\"; test -S \"$DALSEGNO_WORKER\"",
        ),
    ];
    let mut args: Vec<&str> = agents
        .iter()
        .flat_map(|agent| ["--agent", agent.as_str()])
        .collect();
    // Arguments of a command are its own.
    let with = format!("{}one 'two three'", agents[5]);
    args[11] = &with;
    let _worker = workers.worker(&args);
    for (agent, wanted) in [
        ("nothing", serde_json::json!(null)),
        ("text", serde_json::json!("two\nlines")),
        ("json", serde_json::json!([1, {"a": 2}])),
        ("says", serde_json::json!("it is done")),
        ("knows", serde_json::json!("knows run knows 2")),
    ] {
        let run = format!("{agent} run");
        workers
            .run(&["start", agent, &run, "--input", "{\"a\": 2}"])
            .ok();
        let shown = workers.until_is(&run, "completed");
        assert_eq!(shown["result"], wanted, "{shown:#}");
    }
    workers.start("fails", "f");
    workers.until_is("f", "failed");
    let why = workers.run(&["why", "f"]).ok();
    assert!(why.stdout.contains("the report was empty"), "{why:?}");
}

#[test]
fn a_crash_is_followed_by_another_life_that_goes_on_at_the_first_unfinished_step() {
    let workers = Workers::new();
    let script = format!(
        "echo life >> \"$OUT/lives\"\n\
         dalsegno step --name one -- sh -c '{EFFECT}'\n\
         [ $(wc -l < \"$OUT/lives\") -gt 1 ] || kill -9 $$\n\
         dalsegno step --name two -- sh -c '{EFFECT}'\n\
         [ $(wc -l < \"$OUT/lives\") -gt 2 ] || exit 1\n\
         dalsegno step --name three --effect idempotent -- sh -c '[ $DALSEGNO_ATTEMPT -gt 2 ] && {EFFECT}'\n"
    );
    let agent = workers.agent("a", &script);
    let worker = workers.worker(&["--agent", &agent]);
    workers.start("a", "r");
    workers.until_is("r", "completed");
    assert_eq!(workers.left("lives").lines().count(), 5);
    assert_eq!(worker.said("restarting", Some("r")).len(), 4);
    assert_eq!(worker.said("claimed", Some("r")).len(), 1);
    let effects = workers.effects();
    assert_eq!(effects.len(), 3);
    assert!(effects.iter().all(|(_, times)| *times == 1), "{effects:?}");
    workers.run(&["verify"]).ok();
}

#[test]
fn a_step_whose_process_was_killed_is_judged_when_it_is_asked_for_again() {
    let workers = Workers::new();
    // The process of the step dies, and its command with it.
    let dies = "[ $DALSEGNO_ATTEMPT -gt 1 ] || { kill -9 $PPID; sleep 60; }";
    let agents = [
        workers.agent(
            "repeated",
            &format!("dalsegno step --name s --effect idempotent -- sh -c '{dies}; {EFFECT}'"),
        ),
        workers.agent(
            "probed",
            &format!(
                "dalsegno step --name s --probe 'exit 1' -- sh -c '{dies}; {EFFECT}' || exit 5"
            ),
        ),
        // A script that ends well although a step of it is unfinished has not ended well.
        workers.agent(
            "careless",
            &format!(
                "dalsegno step --name s --probe 'echo found' -- sh -c '{dies}; {EFFECT}' || true"
            ),
        ),
        workers.agent(
            "doubtful",
            &format!("dalsegno step --name s -- sh -c '{dies}'"),
        ),
    ];
    let args: Vec<&str> = agents
        .iter()
        .flat_map(|agent| ["--agent", agent.as_str()])
        .collect();
    let _worker = workers.worker(&args);
    for agent in ["repeated", "probed", "careless", "doubtful"] {
        workers.start(agent, agent);
    }
    for run in ["repeated", "probed"] {
        workers.until_is(run, "completed");
    }
    let shown = workers.until_is("careless", "completed");
    assert_eq!(shown["result"], "found", "{shown:#}\n{}", workers.logs());
    assert_eq!(workers.effects().len(), 2);
    let why = workers.until_needs_person("doubtful");
    assert_eq!(why["in_doubt"][0]["step"], "s#1");
    let args = ["resolve", "doubtful", "--happened", "--result", "\"yes\""];
    workers.run(&args).ok();
    let shown = workers.until_is("doubtful", "completed");
    assert_eq!(shown["result"], "yes");
}

#[test]
fn a_step_in_the_background_is_waited_for_and_what_is_left_behind_ends() {
    let workers = Workers::new();
    let script = format!(
        "sleep 600 &\n\
         echo $! > \"$OUT/pid\"\n\
         dalsegno step --name slow -- sh -c 'touch \"$OUT/begun\"; sleep 1.5; seq 20000; {EFFECT}' &\n\
         while [ ! -e \"$OUT/begun\" ]; do sleep 0.01; done"
    );
    let agent = workers.agent("a", &script);
    let _worker = workers.worker(&["--agent", &agent]);
    workers.start("a", "r");
    let shown = workers.until_is("r", "completed");
    assert_eq!(workers.effects().len(), 1);
    assert_eq!(shown["steps"][0]["state"], "done", "{shown:#}");
    let pid = workers.until_left("pid");
    workers::until("its end", || !workers::is_alive(&pid));
}

#[test]
fn who_always_fails_is_handed_to_a_person() {
    let workers = Workers::new();
    let agent = workers.agent(
        "a",
        "[ -e \"$OUT/mended\" ] || { echo 'no such table' >&2; exit 7; }",
    );
    let worker = workers.worker(&["--agent", &agent, "--max-restarts", "3"]);
    workers.start("a", "r");
    let why = workers.until_needs_person("r");
    let because = why["because"].as_str().unwrap();
    for words in ["4 times in a row", "code 7", "no such table"] {
        assert!(because.contains(words), "{because}");
    }
    let commands = why["commands"].to_string();
    assert!(commands.contains("resolve r --go-on"), "{commands}");
    assert_eq!(worker.said("started", Some("r")).len(), 4);
    worker.until("needs-person", Some("r"));
    workers.make("mended");
    workers.run(&["resolve", "r", "--go-on"]).ok();
    workers.until_is("r", "completed");
}

#[test]
fn a_command_that_asks_for_a_person_rests_until_one_has_spoken() {
    let workers = Workers::new();
    let agent = workers.agent(
        "a",
        "[ -e \"$OUT/looked\" ] || { echo 'look at it' >&2; exit 3; }",
    );
    let worker = workers.worker(&["--agent", &agent]);
    workers.start("a", "r");
    let why = workers.until_needs_person("r");
    let because = why["because"].as_str().unwrap();
    assert!(because.contains("look at it"), "{because}");
    assert_eq!(worker.said("started", Some("r")).len(), 1);
    workers.make("looked");
    workers.run(&["resolve", "r", "--go-on"]).ok();
    workers.until_is("r", "completed");
    assert_eq!(worker.said("started", Some("r")).len(), 2);
}

#[test]
fn a_run_that_is_cancelled_takes_its_command_with_it() {
    let workers = Workers::new();
    let agent = workers.agent("a", "echo $$ > \"$OUT/pid\"; sleep 600");
    let worker = workers.worker(&["--agent", &agent]);
    workers.start("a", "r");
    let pid = workers.until_left("pid");
    workers.run(&["cancel", "r"]).ok();
    workers.until_is("r", "cancelled");
    workers::until("its end", || !workers::is_alive(&pid));
    worker.until("ended", Some("r"));
}

#[test]
fn only_so_many_run_at_a_time() {
    let workers = Workers::new();
    let count = "echo + >> \"$OUT/$DALSEGNO_AGENT\"; echo + >> \"$OUT/all\"; sleep 0.05; \
                 echo - >> \"$OUT/$DALSEGNO_AGENT\"; echo - >> \"$OUT/all\"";
    let agents = [workers.agent("a", count), workers.agent("b", count)];
    for n in 0..8 {
        workers.start("a", &format!("a{n}"));
        workers.start("b", &format!("b{n}"));
    }
    let args = ["--agent", &agents[0], "--agent", &agents[1]];
    let args = [
        &args[..],
        &["--max-running", "3", "--max-running-of", "b=1"],
    ]
    .concat();
    let _worker = workers.worker(&args);
    for n in 0..8 {
        workers.until_is(&format!("a{n}"), "completed");
        workers.until_is(&format!("b{n}"), "completed");
    }
    let most = |name: &str| {
        let text = workers.left(name);
        let counted = text.lines().scan(0, |at, line| {
            *at += if line == "+" { 1 } else { -1 };
            Some(*at)
        });
        counted.max().unwrap()
    };
    assert_eq!(most("b"), 1);
    assert!(most("all") <= 3);
}

#[test]
fn the_most_urgent_first_and_only_from_its_queues() {
    let workers = Workers::new();
    let agent = workers.agent("a", "echo \"$DALSEGNO_RUN\" >> \"$OUT/order\"");
    for (run, queue, priority) in [
        ("low", "q", "1"),
        ("high", "q", "9"),
        ("elsewhere", "other", "9"),
        ("middle", "q", "5"),
        ("without", "", "0"),
    ] {
        let args = ["start", "a", run, "--queue", queue, "--priority", priority];
        workers.run(&args).ok();
    }
    let args = ["--agent", &agent, "--queue", "q", "--max-running", "1"];
    let worker = workers.worker(&args);
    workers.until_is("low", "completed");
    assert_eq!(workers.left("order"), "high\nmiddle\nlow\n");
    drop(worker);
    let args = ["--agent", &agent, "--queue", ""];
    let worker = workers.worker(&args);
    workers.until_is("without", "completed");
    drop(worker);
    assert_eq!(workers.show("elsewhere")["status"], "pending");
}

#[test]
fn the_socket_is_for_its_own_user_and_its_own_run() {
    let workers = Workers::new();
    let script = "exec 2>&1 > \"$OUT/printed\"\n\
                  stat -c '%a' \"$DALSEGNO_WORKER\" \"$(dirname \"$DALSEGNO_WORKER\")\"\n\
                  dalsegno step --run other --name s -- sh -c 'echo store $DALSEGNO_WORKER'\n\
                  DALSEGNO_RUN=third dalsegno step --name t -- true || echo code $?\n\
                  dalsegno step --name outer --effect idempotent -- \\\n\
                      dalsegno step --name inner --wait 20ms -- true || echo code $?";
    let agent = workers.agent("a", script);
    let _worker = workers.worker(&["--agent", &agent]);
    workers.start("a", "r");
    workers.until_is("r", "completed");
    let printed = workers.left("printed");
    assert!(printed.starts_with("600\n700\nstore\n"), "{printed}");
    assert_eq!(printed.matches("code 125").count(), 2, "{printed}");
    // A run that its worker does not have is not in its hands.
    assert_eq!(workers.show("other")["agent"], "shell");
    let listed = workers.run(&["ls", "--json"]).ok().json();
    assert_eq!(common::names(&listed).len(), 2, "{listed}");
}

#[test]
fn wrong_use_is_said() {
    let dir = TempDir::new();
    let folder = dir.join("store");
    let ran = common::dalsegno(&folder, ["worker", "--agent", "a=true"]).ends(2);
    assert!(ran.stderr.contains("which has one owner"), "{ran:?}");
    assert!(ran.stderr.contains("dalsegno exec"), "{ran:?}");
    assert!(!folder.exists());
    let workers = Workers::new();
    for (args, words) in [
        (&["worker"][..], "--agent"),
        (&["worker", "--agent", "a"], "report=./report.sh"),
        (&["worker", "--agent", "=true"], "report=./report.sh"),
        (&["worker", "--agent", "a= "], "report=./report.sh"),
        (&["worker", "--agent", "shell=true"], "by hand"),
        (
            &["worker", "--agent", "a=true", "--agent", "a=false"],
            "given twice",
        ),
        (
            &["worker", "--agent", "a=true", "--max-running", "0"],
            "executes nothing",
        ),
        (
            &["worker", "--agent", "a=true", "--max-running-of", "b=1"],
            "is no agent",
        ),
        (
            &["worker", "--agent", "a=true", "--max-running-of", "a"],
            "report=4",
        ),
        (&["worker", "--agent", "a=true", "--lease", "10ms"], "1s"),
        (&["worker", "--agent", "a=true", "--lease", "soon"], "30s"),
    ] {
        let ran = workers.run(args).ends(2);
        assert!(ran.stderr.contains(words), "{args:?}: {ran:?}");
    }
    let url = "postgres://u@127.0.0.1:1/d";
    let ran = common::dalsegno(url.as_ref(), ["worker", "--agent", "a=true"]).ends(1);
    assert!(ran.stderr.contains("no PostgreSQL answers"), "{ran:?}");
}

#[test]
fn a_store_that_cannot_be_written_is_noticed_before_a_run_is_taken() {
    let workers = Workers::new();
    workers.start("a", "r");
    let url = workers.store().to_str().unwrap().to_owned();
    let (_, schema) = url.split_once("?schema=").unwrap();
    let role = format!("reads_{schema}");
    workers.place.sql(&format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role}; \
         GRANT SELECT, UPDATE, INSERT ON ALL TABLES IN SCHEMA {schema} TO {role}; \
         REVOKE INSERT ON event FROM {role}"
    ));
    let as_role = url.replace("postgres@", &format!("{role}@"));
    let ran = common::dalsegno(as_role.as_ref(), ["worker", "--agent", "a=true"]);
    workers
        .place
        .sql(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
    let ran = ran.ends(1);
    assert!(ran.stderr.contains("cannot write to the store"), "{ran:?}");
    assert!(ran.stderr.contains("INSERT on event"), "{ran:?}");
    assert!(ran.stderr.contains("hint: give the user"), "{ran:?}");
    assert_eq!(workers.show("r")["status"], "pending");
    // A copy that is for reading is one more way.
    let read_only = format!("{url}&options=-c%20default_transaction_read_only=on");
    let ran = common::dalsegno(read_only.as_ref(), ["worker", "--agent", "a=true"]).ends(1);
    assert!(
        ran.stderr.contains("hint: connect to the primary"),
        "{ran:?}"
    );
}
