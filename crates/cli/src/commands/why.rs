//! `dalsegno why`: why a run is where it is, and what moves it on.

use dalsegno::{Next, Standing};
use serde_json::json;

use crate::args::Global;
use crate::args::why::Why;
use crate::exit::{Exit, Result};
use crate::output::Out;
use crate::output::text::{quoted, shown_lines};
use crate::{find, left_behind, open, runtime};

/// Says why.
///
/// # Errors
/// There is no such run, or the store cannot be read.
pub fn run(args: &Why, global: &Global, out: &mut Out) -> Result<Exit> {
    let store = open::reader(global)?;
    let why = runtime::block_on(async {
        find::run(&*store, &args.run).await?;
        left_behind::why(global, &*store, &args.run).await
    })?;
    let owner = open::owner_now(global);
    if out.is_json() {
        let mut document = why.to_json();
        document["schema"] = json!("dalsegno.why/1");
        document["owner"] = json!(owner);
        document["commands"] = json!(commands(&why));
        out.json(&document)?;
    } else {
        out.line(shown_lines(&why.to_string()).trim_end())?;
        let owner = open::owner_words(global).unwrap_or_else(|| "nobody now".to_owned());
        out.line(format!("{:14}  {}", "store owner", shown_lines(&owner)))?;
        for (at, command) in commands(&why).iter().enumerate() {
            let name = if at == 0 { "try" } else { "" };
            out.line(format!("{name:14}  {command}"))?;
        }
    }
    Ok(exit(why.standing))
}

fn exit(standing: Standing) -> Exit {
    match standing {
        Standing::NeedsPerson | Standing::WaitsForApproval => Exit::NeedsPerson,
        Standing::Broken => Exit::Damaged,
        _ => Exit::Done,
    }
}

/// What moves it on, ready to be pasted.
fn commands(why: &dalsegno::Why) -> Vec<String> {
    let run = quoted(&why.run);
    let mut commands = Vec::new();
    if why.standing == Standing::NeedsPerson {
        for doubt in &why.in_doubt {
            let step = quoted(&doubt.step);
            commands.push(format!(
                "dalsegno resolve {run} {step} --happened --result JSON"
            ));
            commands.push(format!("dalsegno resolve {run} {step} --did-not-happen"));
            commands.push(format!("dalsegno resolve {run} {step} --fail"));
        }
        if why.in_doubt.is_empty() {
            commands.push(format!("dalsegno resolve {run} --go-on"));
        }
    }
    for next in &why.next {
        match next {
            Next::Approval { approval, .. } => {
                let approval = quoted(approval);
                commands.push(format!("dalsegno approve {run} {approval}"));
                commands.push(format!("dalsegno deny {run} {approval}"));
            }
            Next::Signal { name, .. } => {
                commands.push(format!("dalsegno signal {run} {} JSON", quoted(name)));
            }
            Next::Child { run: child, .. } => {
                commands.push(format!("dalsegno why {}", quoted(child)));
            }
            _ => {}
        }
    }
    commands
}
