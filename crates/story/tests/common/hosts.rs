//! Hosts: network namespaces of the kernel, each with two links to this one, which can be cut like
//! cables. One leads to the database, one to the world.
//!
//! Invariant: what a host can reach is what its links lead to: its own loopback has nobody on it. A
//! link that is cut loses packets and tells nobody.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;

/// Another host.
pub struct Host {
    name: String,
    /// Of the links' names.
    number: u8,
    /// Where it finds the database and the world.
    pub database: String,
    pub world: String,
}

/// Whether there can be other hosts here.
pub fn possible() -> Result<(), String> {
    let name = format!("dalsegno-{}", std::process::id());
    try_ip(&["netns", "add", &name])?;
    try_ip(&["netns", "del", &name])
}

impl Host {
    /// A host with links to database and world at these addresses of the loopback.
    pub fn new(number: u8, database: &str, world: &str) -> Host {
        let name = format!("dalsegno-{}-{number}", std::process::id());
        ip(&["netns", "add", &name]);
        ip(&["-n", &name, "link", "set", "lo", "up"]);
        let mut places = Vec::new();
        for (link, to) in [("d", database), ("w", world)] {
            let net = if link == "d" { 77 } else { 78 };
            let (here, there) = (end(link, number, 'h'), end(link, number, 'g'));
            ip(&["link", "add", &here, "type", "veth", "peer", "name", &there]);
            ip(&["link", "set", &there, "netns", &name]);
            let near = format!("10.{net}.{number}.1");
            ip(&["addr", "add", &format!("{near}/30"), "dev", &here]);
            ip(&["link", "set", &here, "up"]);
            let far = format!("10.{net}.{number}.2/30");
            ip(&["-n", &name, "addr", "add", &far, "dev", &there]);
            ip(&["-n", &name, "link", "set", &there, "up"]);
            places.push(relay(&near, to.to_owned()));
        }
        let [database, world] = <[String; 2]>::try_from(places).unwrap();
        Host {
            name,
            number,
            database,
            world,
        }
    }

    /// What to put in front of a command to run it there.
    pub fn run(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.name]
    }

    /// Cuts the link to the database.
    pub fn cut(&self) {
        ip(&["link", "set", &end("d", self.number, 'h'), "down"]);
    }

    /// Mends it.
    pub fn mend(&self) {
        ip(&["link", "set", &end("d", self.number, 'h'), "up"]);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Its ends of the links go with it, and so do ours.
        drop(try_ip(&["netns", "del", &self.name]));
    }
}

/// The name of a link's end, which must be short.
fn end(link: &str, number: u8, side: char) -> String {
    format!("{link}{side}{number}x{}", std::process::id())
}

fn try_ip(args: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(args).output();
    let output = output.map_err(|e| format!("ip: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

#[track_caller]
fn ip(args: &[&str]) {
    try_ip(args).unwrap_or_else(|e| panic!("ip {}: {e}", args.join(" ")));
}

/// Listens at an address of this end of a link, and passes everything on. Where.
fn relay(at: &str, to: String) -> String {
    let listener = TcpListener::bind((at, 0)).unwrap();
    let place = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for from in listener.incoming().map_while(Result::ok) {
            let Ok(onward) = TcpStream::connect(&to) else {
                continue;
            };
            let (back, forth) = (from.try_clone().unwrap(), onward.try_clone().unwrap());
            std::thread::spawn(move || pass(from, onward));
            std::thread::spawn(move || pass(forth, back));
        }
    });
    place
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Write));
}
