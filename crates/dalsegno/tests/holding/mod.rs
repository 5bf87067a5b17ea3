//! A run that holds resources and waits.

#![allow(dead_code, clippy::unwrap_used)]

use std::path::Path;

use dalsegno::{Builder, Ctx, Dalsegno, Error, Resource, Standing};

use crate::lives::stands;

/// Notes resources, waits for a signal, and ends.
pub fn holder(make: impl Fn() -> Vec<Resource> + Clone + Send + Sync + 'static) -> Builder {
    Dalsegno::builder().agent("holder", move |ctx: Ctx, (): ()| {
        let make = make.clone();
        async move {
            let mut checkpoint = ctx.checkpoint("holding", &"state");
            for resource in make() {
                checkpoint = checkpoint.holding(resource);
            }
            checkpoint.await?;
            ctx.signal::<u64>("go").await
        }
    })
}

/// A run that holds a file and waits; then the file is changed, and the signal comes.
pub async fn changed_while_waiting(app: &Dalsegno, change: impl FnOnce()) {
    app.start("holder", "h", &()).await.unwrap();
    stands(app, "h", Standing::WaitsForSignal).await;
    change();
    app.signal("h", "go", &7).await.unwrap();
}

pub async fn result(app: &Dalsegno) -> Result<u64, Error> {
    app.find("h").await.unwrap().result().await
}

pub fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}
