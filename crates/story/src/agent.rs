//! The agent of the story: it plans a trip, asks around, writes two files, asks a person, tells the
//! guest, books.
//!
//! | step | effect |
//! |---|---|
//! | `outline` | a model call |
//! | `research`, a plan step: `ask` of three services at a time, then the model's `summarise` | `read_only` |
//! | `save-summary` | a file, `idempotent` |
//! | `pace` | a decision |
//! | `write-letter` | a model call |
//! | `save-letter` | a file, `idempotent` |
//! | `publish` | a person's approval |
//! | `notify` | `once`, with a probe |
//! | `book` | `idempotent`, by its key |
//! | `farewell` | a model call |
//!
//! Invariant: the result depends on the run's name and input only, so that any run can be compared
//! with one that was never disturbed.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dalsegno::{Builder, Call, Ctx, Failure, Probe, Result};

use crate::http::{Reply, Request, Sent};

/// Its name.
pub const NAME: &str = "trip";

/// Its steps in their order, as they are told of. The three services are asked at the same time. Not
/// among them: `research`, which is made of steps, and `pace`, which is a decision.
pub const STEPS: [&str; 12] = [
    "outline",
    "weather",
    "stock",
    "news",
    "summarise",
    "save-summary",
    "write-letter",
    "save-letter",
    "publish",
    "notify",
    "book",
    "farewell",
];

/// Steps of [`STEPS`] that ask nothing of the world.
const SILENT: [&str; 3] = ["save-summary", "save-letter", "publish"];

/// The name in [`STEPS`] of a step by its identity; of others the last part of that.
pub fn told_name(id: &str) -> &str {
    let sources = [
        ("source#1/", "weather"),
        ("source#2/", "stock"),
        ("source#3/", "news"),
    ];
    let source = sources.iter().find(|(part, _)| id.contains(part));
    let last = id.rsplit('/').next().unwrap_or(id);
    source.map_or(last.split('#').next().unwrap_or(last), |(_, name)| name)
}

/// How many requests the world has had before this step, if nothing was asked twice; `None` if the
/// step asks nothing.
pub fn requests_before(step: &str) -> Option<u64> {
    let place = STEPS.iter().position(|name| *name == step)?;
    let asks = |name: &&&str| !SILENT.contains(*name);
    let before = STEPS[..place].iter().filter(asks).count();
    asks(&&step).then_some(before as u64)
}

/// How long a request is on its way: time to be killed in between the intent and the effect.
const LINE: Duration = Duration::from_millis(1);

/// Where the agent acts.
#[derive(Clone, Debug)]
pub struct Place {
    /// The world's address.
    pub world: String,
    /// The folder for files.
    pub out: PathBuf,
    /// This process, as the ledger shall show it.
    pub worker: String,
    /// Whether the agent can ask if a notification was sent.
    pub probe: bool,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Trip {
    /// What the world said to the notification.
    pub notified: String,
    /// What the world said to the booking.
    pub booked: String,
    /// Of everything that was found out and written.
    pub digest: String,
}

/// Registers the agent.
pub fn register(builder: Builder, place: Place) -> Builder {
    let place = Arc::new(place);
    builder.agent(NAME, move |ctx, destination: String| {
        plan_trip(Arc::clone(&place), ctx, destination)
    })
}

async fn plan_trip(place: Arc<Place>, ctx: Ctx, destination: String) -> Result<Trip> {
    let outline = place.think(&ctx, "outline", &destination).await?;
    let inside = Arc::clone(&place);
    let summary: String = ctx
        .plan_step("research", |ctx| async move {
            let sources = ["weather", "stock", "news"];
            let found = ctx.each("source", sources, |ctx, source| {
                let place = Arc::clone(&inside);
                async move { place.ask(&ctx, source).await }
            });
            let found = found.await?;
            inside.think(&ctx, "summarise", &found.join("; ")).await
        })
        .await?;
    let text = format!("{outline}\n{summary}\n");
    place.save(&ctx, "summary", &text).await?;
    let pace = match summary.len() % 2 {
        0 => "slow",
        _ => "fast",
    };
    let pace = ctx.decide("pace", pace.to_owned()).await?;
    let letter = place
        .think(&ctx, "write-letter", &format!("{pace}: {summary}"))
        .await?;
    place.save(&ctx, "letter", &letter).await?;
    let answer = ctx.approval("publish").of(&letter).await?;
    if !answer.is_approved() {
        return Err(Failure::terminal("nobody may read the letter"));
    }
    let notified = place.notify(&ctx, &letter).await?;
    let booked = place.book(&ctx, &destination).await?;
    let farewell = place.think(&ctx, "farewell", &booked).await?;
    let all = [&text, &pace, &letter, &notified, &booked, &farewell];
    let all = all.map(String::as_str).join("\n");
    Ok(Trip {
        notified,
        booked,
        digest: blake3::hash(all.as_bytes()).to_string(),
    })
}

impl Place {
    /// A call of the model.
    async fn think(self: &Arc<Self>, ctx: &Ctx, name: &str, prompt: &str) -> Result<String> {
        let step = ctx.model(name).input(prompt);
        step.call(|call| {
            let request = Request::post("/model", prompt);
            let asking = self.send(ctx, name, &call, request);
            async move {
                let answer = ok(asking.await?)?;
                call.tokens(prompt.len() as u64, answer.len() as u64);
                Ok(answer)
            }
        })
        .await
    }

    /// A question to one of the services.
    async fn ask(self: &Arc<Self>, ctx: &Ctx, source: &str) -> Result<String> {
        let step = ctx.tool("ask").read_only().input(source);
        step.call(|call| {
            let request = Request::get(format!("/{source}"));
            let asking = self.send(ctx, source, &call, request);
            async move { ok(asking.await?) }
        })
        .await
    }

    /// Writes a file of the run. Writing it again changes nothing.
    async fn save(self: &Arc<Self>, ctx: &Ctx, name: &str, text: &str) -> Result<()> {
        let path = self.out.join(ctx.run_id()).join(format!("{name}.txt"));
        let step = ctx.tool(&format!("save-{name}")).idempotent().input(text);
        step.call(|_| {
            let (path, text) = (path.clone(), text.to_owned());
            async move {
                blocking(move || replace(&path, text.as_bytes()))
                    .await?
                    .map_err(Failure::from)
            }
        })
        .await
    }

    /// Tells the guest: must not happen twice.
    async fn notify(self: &Arc<Self>, ctx: &Ctx, letter: &str) -> Result<String> {
        let mut step = ctx.tool("notify").once().input(letter);
        if self.probe {
            let (place, ctx) = (Arc::clone(self), ctx.clone());
            step = step.probe(move |call| {
                let request = Request::get(format!("/notifications/{}", call.key()));
                let asking = place.send(&ctx, "notify", &call, request);
                async move {
                    let reply = asking.await?;
                    Ok(match reply.status {
                        200 => Probe::Happened(reply.text()),
                        404 => Probe::DidNotHappen,
                        _ => Probe::Unknown,
                    })
                }
            });
        }
        step.call(|call| {
            let request = Request::post("/notifications", letter);
            let asking = self.send(ctx, "notify", &call, request);
            async move { ok(asking.await?) }
        })
        .await
    }

    /// Books: the other side does it once for each key.
    async fn book(self: &Arc<Self>, ctx: &Ctx, destination: &str) -> Result<String> {
        let step = ctx.tool("book").idempotent().input(destination);
        step.call(|call| {
            let request = Request::post("/bookings", destination);
            let asking = self.send(ctx, "book", &call, request);
            async move { ok(asking.await?) }
        })
        .await
    }

    /// Sends a request from another thread, so that other runs go on meanwhile.
    fn send(
        &self,
        ctx: &Ctx,
        step: &str,
        call: &Call,
        request: Request,
    ) -> impl Future<Output = Result<Reply>> + Send + use<> {
        let request = request
            .header("x-run", ctx.run_id())
            .header("x-step", step)
            .header("x-worker", &self.worker)
            .header("idempotency-key", call.key())
            .header("x-fence", &call.token().to_string());
        let world = self.world.clone();
        async move {
            let sending = move || {
                std::thread::sleep(LINE);
                request.send(&world)
            };
            match blocking(sending).await? {
                Ok(reply) => Ok(reply),
                Err(e @ Sent::Never(_)) => Err(Failure::not_done(e)),
                Err(e @ Sent::Maybe(_)) => Err(Failure::new(e)),
            }
        }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    Ok(tokio::task::spawn_blocking(work).await?)
}

/// The text of a reply that says yes.
fn ok(reply: Reply) -> Result<String> {
    match reply.status {
        200 => Ok(reply.text()),
        status => Err(Failure::terminal(format!("{status}: {}", reply.text()))),
    }
}

/// Puts a file in place, whole or not at all.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let draft = path.with_extension("draft");
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = std::fs::File::create(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&draft, path)
}
