//! Writes a report in ten parts and sends it once. Kill it (Ctrl-C, `kill -9`), and run it again.

use std::time::Duration;

use dalsegno::{Ctx, Dalsegno, Result};

async fn report(ctx: Ctx, topic: String) -> Result<String> {
    let mut text = String::new();
    for part in 1..=10 {
        let prompt = format!("{topic}, part {part}");
        let ask = ctx.model("write").input(&prompt).call(|_| async {
            println!("asking the model for part {part}");
            tokio::time::sleep(Duration::from_millis(500)).await; // stands for the model
            Ok(format!("[{prompt}] "))
        });
        text += &ask.await?;
    }
    let send = ctx
        .tool("send")
        .once()
        .input(&text)
        .call(|call| async move {
            println!("sending it under the key {}", call.key());
            Ok(())
        });
    send.await?;
    Ok(text)
}

#[tokio::main]
async fn main() -> Result<(), dalsegno::Error> {
    let app = Dalsegno::builder().agent("report", report);
    let app = app.open("target/report.dalsegno").await?;
    let text: String = app.run("report", "report on whales", "whales").await?;
    println!("{text}");
    app.close().await
}
