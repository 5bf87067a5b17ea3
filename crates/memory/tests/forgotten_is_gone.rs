//! What is forgotten is in no file of the store any more, and everything else still verifies.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::*;
use dalsegno_memory::{
    AsOf, Changed, DocId, HowEnded, Memory, MemoryError, NewDocument, Query, RankingConfig, Scope,
};
use dalsegno_store::transfer::{self, Export, Importing};
use dalsegno_store::{
    Answer, Append, Hash, Kind, LocalStore, NewEvent, Options, Over, Retention, Store, StreamId,
};

/// Words that nothing else has.
const SECRETS: [&str; 6] = [
    "zanzibarquux",
    "titlequibble",
    "sourcewombat",
    "tagxylophone",
    "scopenarwhal",
    "plughxyzzy",
];

/// Files under a folder that have one of the secrets in them.
fn files_with_secrets(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with_secrets(&path));
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let has = |secret: &str| {
            let stem = &secret.as_bytes()[..8];
            bytes.windows(8).any(|window| window == stem)
        };
        if SECRETS.iter().any(|secret| has(secret)) {
            found.push(path.display().to_string());
        }
    }
    found
}

fn secret() -> NewDocument {
    NewDocument::fact(SECRETS[0])
        .title(SECRETS[1])
        .source(SECRETS[2])
        .tag(SECRETS[3])
        .scope(Scope::Agent(SECRETS[4].into()))
        .vector(vector(&mut Random::new(1)))
}

/// Long enough for several pieces, which no compression hides: every word is another.
fn long_secret() -> NewDocument {
    let mut random = Random::new(2);
    let mut text = String::new();
    for _ in 0..800 {
        let rest = random.below(1 << 30);
        text.push_str(&format!("{}{rest:x} ", SECRETS[5]));
    }
    NewDocument::document(text)
}

async fn some(memory: &Memory, random: &mut Random, count: usize) {
    for _ in 0..count {
        memory.add(document(random)).await.unwrap();
    }
}

fn assert_sound(dir: &Path) {
    let report = Options::new().verify(dir).unwrap();
    assert!(report.is_sound(), "{report}");
    assert!(report.losses.is_empty(), "{report}");
    read_by_the_page(&dir.join("log"));
}

/// The reader that was written from the page about the format finds it whole, too.
fn read_by_the_page(path: &Path) {
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/read-format.py");
    let mut python = std::process::Command::new("python3");
    let read = python.arg(reader).arg(path).output().unwrap();
    let said = String::from_utf8_lossy(&read.stdout);
    assert!(read.status.success(), "{said}");
}

async fn found(memory: &Memory, words: &str) -> usize {
    let ranking = RankingConfig::default();
    let hits = memory.search(&Query::words(words), &ranking).await.unwrap();
    hits.hits.len()
}

#[test]
fn from_every_file_at_once() {
    let folder = Folder::new();
    let store = folder.open();
    block_on(async {
        let mut random = Random::new(3);
        let memory = Memory::open(shared(&store), "life")
            .await
            .unwrap()
            .by("clerk");
        some(&memory, &mut random, 30).await;
        let short = memory.add(secret()).await.unwrap();
        let long = memory.add(long_secret()).await.unwrap();
        some(&memory, &mut random, 30).await;
        memory.keep().await.unwrap();
        assert_eq!(found(&memory, SECRETS[0]).await, 1);
        // In the log, and in the helpers.
        assert!(files_with_secrets(&folder.0).len() >= 3);

        let version = memory.version().await.unwrap();
        let forgotten = memory
            .forget(&[short, long], "a person asked for it")
            .await
            .unwrap();
        assert_eq!(forgotten.ids, [short, long]);
        assert_eq!(files_with_secrets(&folder.0), Vec::<String>::new());
        assert_sound(&folder.0);

        // Gone at every version, for this handle and for others.
        let again = Memory::open(shared(&store), "life").await.unwrap();
        for memory in [&memory, &again] {
            for as_of in [AsOf::Now, AsOf::Version(version)] {
                for secret in SECRETS {
                    let query = Query::words(secret).as_of(as_of);
                    let hits = memory
                        .search(&query, &RankingConfig::default())
                        .await
                        .unwrap();
                    assert!(hits.hits.is_empty(), "{secret}");
                    let since = if as_of == AsOf::Now { 0 } else { 2 };
                    assert_eq!(hits.forgotten_since, since);
                }
            }
            let error = memory.get(short).await.unwrap_err();
            assert!(matches!(&error, MemoryError::Ended { ended, .. }
                if ended.how == HowEnded::Forgotten && ended.by.as_deref() == Some("clerk")));
            assert!(
                error.to_string().contains("forgotten by clerk at"),
                "{error}"
            );
        }
        // Other work goes on, with what was said before.
        some(&memory, &mut random, 5).await;
        memory.add(secret()).await.unwrap();
        assert_eq!(found(&memory, SECRETS[0]).await, 1);
    });
    store.close().unwrap();
    assert_sound(&folder.0);
}

/// A process that dies between saying it and doing it.
#[test]
fn also_if_it_was_interrupted() {
    let folder = Folder::new();
    let store = folder.open();
    let id = block_on(async {
        let memory = Memory::open(shared(&store), "life").await.unwrap();
        some(&memory, &mut Random::new(4), 10).await;
        let id = memory.add(secret()).await.unwrap();
        memory.keep().await.unwrap();
        id
    });
    let named = dalsegno_store::Value::List(vec![id.0.into()]);
    let fields = dalsegno_store::Fields::new().with(1, named);
    let said = NewEvent::new(Kind::MemoryForgotten).with_fields(fields);
    let stream = StreamId::memory("life").unwrap();
    block_on(store.append(vec![Append::to(stream, vec![said])])).unwrap();
    store.close().unwrap();
    assert!(files_with_secrets(&folder.0).len() >= 2);
    assert_sound(&folder.0);

    // Who only reads does not see it, and cannot remove it.
    let reader = options().open_read_only(&folder.0).unwrap();
    let memory = block_on(Memory::open(shared(&reader), "life")).unwrap();
    assert_eq!(block_on(found(&memory, SECRETS[0])), 0);
    drop((memory, reader));

    let store = folder.open();
    let memory = block_on(Memory::open(shared(&store), "life")).unwrap();
    assert_eq!(files_with_secrets(&folder.0), Vec::<String>::new());
    assert_eq!(block_on(found(&memory, SECRETS[0])), 0);
    assert_sound(&folder.0);
}

/// A crash between the pieces of a document and its event leaves pieces that no event names; then it
/// was added again.
#[test]
fn also_what_a_crash_left_of_adding_it() {
    let folder = Folder::new();
    let store = folder.open();
    block_on(async {
        let memory = Memory::open(shared(&store), "life").await.unwrap();
        some(&memory, &mut Random::new(5), 10).await;
        let kept = memory.version().await.unwrap();
        let secret_bytes = SECRETS[0].repeat(100).into_bytes();
        let left = dalsegno_store::payload::split(&secret_bytes, |_| false);
        let position = store.take_over(left.pieces, Vec::new()).await.unwrap();
        store.durable(position).await.unwrap();
        let id = memory.add(secret()).await.unwrap();
        assert!(!files_with_secrets(&folder.0).is_empty());
        memory.forget(&[id], "asked").await.unwrap();
        assert_eq!(files_with_secrets(&folder.0), Vec::<String>::new());
        for at in 1..=kept.sequence {
            memory.get(DocId(at)).await.unwrap();
        }
    });
    store.close().unwrap();
    assert_sound(&folder.0);
}

/// Who said that it is forgotten was stopped before the contents were gone, and another has the memory
/// open: it need not be opened again.
#[test]
fn by_who_has_it_open_already() {
    let folder = Folder::new();
    let store = folder.open();
    block_on(async {
        let stopped = Memory::open(shared(&store), "life").await.unwrap();
        let open = Memory::open(shared(&store), "life").await.unwrap();
        let id = stopped.add(secret()).await.unwrap();
        assert_eq!(found(&open, SECRETS[0]).await, 1);
        let draft = stopped.draft_forget(&[id], "asked").await.unwrap();
        let appended = store.append(vec![draft.append().unwrap()]).await.unwrap();
        store.durable(appended.position).await.unwrap();
        assert_eq!(found(&open, SECRETS[0]).await, 0);
        assert!(!files_with_secrets(&folder.0).is_empty());
        open.finish_forgetting().await.unwrap();
        assert_eq!(files_with_secrets(&folder.0), Vec::<String>::new());
        // There is nothing to do any more.
        open.finish_forgetting().await.unwrap();
    });
    store.close().unwrap();
    assert_sound(&folder.0);
}

/// What is missing and was not forgotten is damage.
#[test]
fn and_nothing_else_may_be_missing() {
    let folder = Folder::new();
    let store = folder.open();
    block_on(async {
        let memory = Memory::open(shared(&store), "life").await.unwrap();
        let id = memory.add(secret()).await.unwrap();
        memory.forget(&[id], "").await.unwrap();
        let kept = memory.add(secret()).await.unwrap();
        let mut file = Vec::new();
        let export = transfer::export(&store, &Export::Store, 0, &mut file);
        assert_eq!(export.await.unwrap().pieces, 1);
        // The same file without its only piece, and with an end that fits.
        let mut reader = dalsegno_store::portable::PortableReader::open(&file[..]).unwrap();
        let about = reader.about().clone();
        let writer = dalsegno_store::portable::PortableWriter::new(Vec::new(), about);
        let mut writer = writer.unwrap();
        while let Some(item) = reader.next().unwrap() {
            if let dalsegno_store::portable::Item::Event { bytes, .. } = item {
                writer.event(&bytes).unwrap();
            }
        }
        let error = writer.finish().unwrap_err().to_string();
        assert!(
            error.contains(&format!("event {kept} of memory/life")),
            "{error}"
        );
    });
}

#[test]
fn from_what_is_copied_and_imported_later() {
    let folder = Folder::new();
    let (other, third) = (Folder::new(), Folder::new());
    let store = folder.open();
    let mut before = Vec::new();
    let (id, hits, stream) = block_on(async {
        let memory = Memory::open(shared(&store), "life").await.unwrap();
        some(&memory, &mut Random::new(6), 10).await;
        let id = memory.add(secret()).await.unwrap();
        transfer::export(&store, &Export::Store, 0, &mut before)
            .await
            .unwrap();
        // A copy from before.
        let copy = other.open();
        transfer::copy(&store, &copy, true, &mut |_| true)
            .await
            .unwrap();
        let import = third.open();
        transfer::import(&import, &Importing::default(), || Ok(&before[..]))
            .await
            .unwrap();
        // With indexes that have it.
        for store in [&copy, &import] {
            let memory = Memory::open(shared(store), "life").await.unwrap();
            memory.keep().await.unwrap();
        }
        copy.close().unwrap();
        import.close().unwrap();
        memory.forget(&[id], "").await.unwrap();
        some(&memory, &mut Random::new(7), 10).await;
        let queries = queries(&mut Random::new(8));
        let hits = all_hits(&memory, &queries, AsOf::Now).await;
        (id, hits, memory.stream().clone())
    });
    assert_eq!(id, DocId(11));
    assert!(!files_with_secrets(&other.0).is_empty() && !files_with_secrets(&third.0).is_empty());
    // What comes later says that it is forgotten, and so it goes there too.
    block_on(async {
        let copy = other.open();
        let report = transfer::copy(&store, &copy, false, &mut |_| true)
            .await
            .unwrap();
        assert!(report.differences.is_empty(), "{report:?}");
        copy.close().unwrap();
        let mut after = Vec::new();
        let only = Export::Streams([stream.clone()].into());
        transfer::export(&store, &only, 0, &mut after)
            .await
            .unwrap();
        let file = third.0.join("file.dalsegno");
        std::fs::write(&file, &after).unwrap();
        read_by_the_page(&file);
        std::fs::remove_file(&file).unwrap();
        let import = third.open();
        transfer::import(&import, &Importing::default(), || Ok(&after[..]))
            .await
            .unwrap();
        import.close().unwrap();
        // Of an old file everything is there already.
        let import = third.open();
        let again = transfer::import(&import, &Importing::default(), || Ok(&before[..])).await;
        assert_eq!(again.unwrap().present, [stream]);
        import.close().unwrap();
    });
    for dir in [&other, &third] {
        assert_eq!(files_with_secrets(&dir.0), Vec::<String>::new());
        assert_sound(&dir.0);
        let store = dir.open();
        let memory = block_on(Memory::open(shared(&store), "life")).unwrap();
        let queries = queries(&mut Random::new(8));
        assert_eq!(block_on(all_hits(&memory, &queries, AsOf::Now)), hits);
    }
    // A copy of the files is whole, too.
    let files = Folder::new();
    options().copy(&folder.0, &files.0).unwrap();
    assert_eq!(files_with_secrets(&files.0), Vec::<String>::new());
    assert_sound(&files.0);
}

/// A file of a whole store that was made before has what is forgotten here, and other streams that are
/// new here.
#[test]
fn and_an_old_file_of_a_whole_store_does_not_bring_it_back() {
    let (there, here) = (Folder::new(), Folder::new());
    let store = there.open();
    let stream = StreamId::memory("life").unwrap();
    let (id, whole, only) = block_on(async {
        let memory = Memory::open(shared(&store), "life").await.unwrap();
        some(&memory, &mut Random::new(10), 5).await;
        let id = memory.add(secret()).await.unwrap();
        let long = memory.add(long_secret()).await.unwrap();
        // Behind it in the file.
        let other = Memory::open(shared(&store), "work").await.unwrap();
        other.add(NewDocument::fact("it rains")).await.unwrap();
        let (mut whole, mut only) = (Vec::new(), Vec::new());
        let exported = transfer::export(&store, &Export::Store, 0, &mut whole);
        exported.await.unwrap();
        let streams = Export::Streams([stream.clone()].into());
        let exported = transfer::export(&store, &streams, 0, &mut only);
        exported.await.unwrap();
        ([id, long], whole, only)
    });
    let store = here.open();
    block_on(async {
        let how = Importing::default();
        let imported = transfer::import(&store, &how, || Ok(&only[..])).await;
        assert_eq!(imported.unwrap().events, 7);
        let memory = Memory::open(shared(&store), "life").await.unwrap();
        memory.forget(&id, "asked").await.unwrap();
        assert_eq!(files_with_secrets(&here.0), Vec::<String>::new());
        let imported = transfer::import(&store, &how, || Ok(&whole[..])).await;
        let imported = imported.unwrap();
        assert_eq!((imported.events, imported.present), (1, vec![stream]));
        let other = Memory::open(shared(&store), "work").await.unwrap();
        assert_eq!(found(&other, "rain").await, 1);
        for at in 1..=5 {
            memory.get(DocId(at)).await.unwrap();
        }
    });
    store.close().unwrap();
    assert_eq!(files_with_secrets(&here.0), Vec::<String>::new());
    assert_sound(&here.0);
}

/// A store in which somebody forgets documents while contents are read.
#[derive(Debug)]
struct Forgetful {
    store: LocalStore,
    memory: Memory,
    /// When so many contents were asked for, these.
    plan: Mutex<Vec<(usize, DocId)>>,
    asked: AtomicUsize,
}

impl Over for Forgetful {
    fn below(&self) -> &dyn Store {
        &self.store
    }

    fn pieces<'a>(&'a self, hashes: &'a [Hash]) -> Answer<'a, Vec<Vec<u8>>> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        let due = |(at, _): &mut (usize, DocId)| *at <= asked;
        let due: Vec<_> = self.plan.lock().unwrap().extract_if(.., due).collect();
        Box::pin(async move {
            for (_, id) in due {
                self.memory.forget(&[id], "asked").await.unwrap();
            }
            self.store.pieces(hashes).await
        })
    }
}

/// Forgotten when it was read, while it is, and before it is: none of it is damage of what is exported or
/// copied, and none of it arrives.
#[test]
fn while_it_is_exported_and_copied() {
    for copies in [false, true] {
        let (folder, to) = (Folder::new(), Folder::new());
        let (store, other) = (folder.open(), to.open());
        block_on(async {
            let memory = Memory::open(shared(&store), "life").await.unwrap();
            let mut secrets = Vec::new();
            for seed in 0..3 {
                secrets.push(memory.add(secret()).await.unwrap());
                some(&memory, &mut Random::new(seed), 5).await;
            }
            let forgetful = Forgetful {
                store: store.clone(),
                memory: memory.clone(),
                plan: Mutex::new(vec![(6, secrets[0]), (6, secrets[1]), (6, secrets[2])]),
                asked: AtomicUsize::new(0),
            };
            if copies {
                for _ in 0..2 {
                    let go_on = &mut |_| true;
                    let copied = transfer::copy(&forgetful, &other, true, go_on);
                    let report = copied.await.unwrap();
                    assert_eq!(report.differences, []);
                    // Each of them is whole, up to some event.
                    let copy = Memory::open(shared(&other), "life").await.unwrap();
                    let version = report.heads[&StreamId::memory("life").unwrap()];
                    assert_eq!(copy.version().await.unwrap(), version);
                    found(&copy, SECRETS[0]).await;
                }
            } else {
                let mut file = Vec::new();
                let export = transfer::export(&forgetful, &Export::Store, 0, &mut file);
                export.await.unwrap();
                let how = Importing::default();
                transfer::import(&other, &how, || Ok(&file[..]))
                    .await
                    .unwrap();
            }
            assert!(forgetful.plan.lock().unwrap().is_empty());
            let copy = Memory::open(shared(&other), "life").await.unwrap();
            let version = memory.version().await.unwrap();
            assert_eq!(copy.version().await.unwrap(), version);
            assert_eq!(found(&copy, SECRETS[0]).await, 0);
        });
        other.close().unwrap();
        assert_eq!(files_with_secrets(&to.0), Vec::<String>::new());
        assert_sound(&to.0);
    }
}

/// Retention and forgetting rewrite the same files.
#[test]
fn beside_retention() {
    let folder = Folder::new();
    let store = folder.open();
    let run = StreamId::run("r").unwrap();
    let kinds = [Kind::RunCreated, Kind::RunCompleted];
    let events = kinds.map(NewEvent::new).to_vec();
    block_on(store.append(vec![Append::to(run, events)])).unwrap();
    let retention = Retention {
        ended_before_us: u64::MAX,
        archive: false,
    };
    block_on(async {
        let memory = Memory::open(shared(&store), "life").await.unwrap();
        let mut random = Random::new(9);
        let queries = queries(&mut random);
        let history = History::live(&memory, &mut random, &queries, 20).await;
        let id = memory.add(secret()).await.unwrap();
        memory.forget(&[id], "").await.unwrap();
        assert_eq!(store.retire(&retention).unwrap().runs.len(), 1);
        let last = &history.found.last().unwrap().1;
        let now = all_hits(&memory, &queries, AsOf::Now).await;
        assert_eq!(ids_and_scores(&now), ids_and_scores(last));
    });
    assert_eq!(files_with_secrets(&folder.0), Vec::<String>::new());
    assert_sound(&folder.0);
}

/// Appends of others go on while something is forgotten, also such that repeat it.
#[test]
fn while_others_write_the_same() {
    let folder = Folder::new();
    let store = folder.open();
    let writer = {
        let store = store.clone();
        std::thread::spawn(move || {
            let stream = StreamId::run("talk").unwrap();
            let created = vec![NewEvent::new(Kind::RunCreated)];
            block_on(store.append(vec![Append::to(stream.clone(), created)])).unwrap();
            for n in 0..200 {
                let text = format!("{} {}", "the same again ".repeat(200), n % 7);
                let payload = dalsegno_store::NewPayload::json(text);
                let event = NewEvent::new(Kind::User("said".into())).with_input(payload);
                block_on(store.append(vec![Append::to(stream.clone(), vec![event])])).unwrap();
            }
        })
    };
    block_on(async {
        let memory = Memory::open(shared(&store), "life").await.unwrap();
        for _ in 0..10 {
            let text = "the same again ".repeat(200);
            let id = memory.add(NewDocument::document(text)).await.unwrap();
            memory.forget(&[id], "").await.unwrap();
        }
    });
    writer.join().unwrap();
    store.close().unwrap();
    assert_sound(&folder.0);
}

#[test]
fn the_history_says_what_happened() {
    let folder = Folder::new();
    let store = folder.open();
    block_on(async {
        let memory = Memory::open(shared(&store), "life")
            .await
            .unwrap()
            .by("clerk");
        let old = memory
            .add(NewDocument::fact("the shop opens at nine"))
            .await
            .unwrap();
        let new = memory
            .correct(old, NewDocument::fact("the shop opens at ten"))
            .await
            .unwrap();
        let other = memory.add(NewDocument::plan("go there")).await.unwrap();
        memory.retract(other, "nobody wants to").await.unwrap();
        memory.forget(&[old], "asked for").await.unwrap();
        let history = memory.history(new).await.unwrap();
        assert_eq!(history.len(), 2);
        assert_eq!((history[0].id, history[0].content.is_none()), (old, true));
        assert_eq!(
            history[1].content.as_ref().unwrap().text,
            "the shop opens at ten"
        );
        let changes = memory.changes(AsOf::Sequence(0), AsOf::Now).await.unwrap();
        let what: Vec<Changed> = changes.iter().map(|change| change.what.clone()).collect();
        let expected = [
            Changed::Added(old),
            Changed::Corrected { old, new },
            Changed::Added(other),
            Changed::Retracted(other),
            Changed::Forgotten(vec![old]),
        ];
        assert_eq!(what, expected);
        assert!(
            changes
                .iter()
                .all(|change| change.by.as_deref() == Some("clerk"))
        );
        assert_eq!(changes[4].reason.as_deref(), Some("asked for"));
        let list = memory
            .list(&Default::default(), AsOf::Now, None, 10)
            .await
            .unwrap();
        assert_eq!(list.len(), 1);
        assert_eq!((list[0].id, list[0].corrects), (new, Some(old)));
        let then = memory
            .list(&Default::default(), AsOf::Sequence(3), Some(new), 10)
            .await;
        assert_eq!(then.unwrap()[0].id, other);
    });
}
