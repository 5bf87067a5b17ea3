//! A PostgreSQL server for tests: from the programs of the system, on a free port of the loopback,
//! with `fsync` on.
//!
//! | what | for |
//! |---|---|
//! | [`Server::shared`] | tests that need a schema: one server for all test processes of a run |
//! | [`Server::start`] | tests that stop their server, and benchmarks |
//!
//! Invariant: no server outlives the processes that use it, however they end. Each holds a lock on a
//! file, which the kernel lets go of with the process; a small shell script beside the server waits
//! for that lock, then stops the server and removes its folder. Of the shared one, the lock file
//! stays.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, flock};

/// Programs that no server runs as root.
const ROOT: u32 = 0;

/// What stops a server when nobody uses it any more. `$1` is the lock, `$2` the folder, `$3` how many
/// seconds nobody must have used it.
const WATCH: &str = r#"
exec 9>"$1"
while :; do
    flock -x 9
    [ "$3" = 0 ] && break
    flock -u 9
    sleep "$3"
    flock -xn 9 && break
done
pid=$(head -n 1 "$2/data/postmaster.pid" 2>/dev/null)
if [ -n "$pid" ]; then
    kill -QUIT "$pid" 2>/dev/null
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
fi
rm -rf "$2"
[ "$3" = 0 ] && rm -f "$1"
"#;

/// A server that is running, at least when it was made.
#[derive(Debug)]
pub struct Server {
    dir: PathBuf,
    port: u16,
    /// Held as long as the server is used.
    _lock: File,
}

impl Server {
    /// The server that all tests share. Each uses a schema of its own.
    ///
    /// # Panics
    /// There is no PostgreSQL, or it does not start.
    pub fn shared() -> Server {
        let name = format!("dalsegno-pgtest-{}", rustix::process::getuid().as_raw());
        let base = std::env::temp_dir().join(name);
        let lock_path = base.with_extension("lock");
        let starting = open_lock(&base.with_extension("starting"));
        flock(&starting, FlockOperation::LockExclusive).unwrap();
        let lock = open_lock(&lock_path);
        flock(&lock, FlockOperation::LockShared).unwrap();
        if let Some(port) = read_port(&base).filter(|port| answers(*port)) {
            return Server {
                dir: base,
                port,
                _lock: lock,
            };
        }
        drop(fs::remove_dir_all(&base));
        let port = make(&base);
        launch(&base, port);
        fs::write(base.join("port"), port.to_string()).unwrap();
        watch(&lock_path, &base, 5);
        Server {
            dir: base,
            port,
            _lock: lock,
        }
    }

    /// A server for this caller alone; it goes with the value.
    ///
    /// # Panics
    /// There is no PostgreSQL, or it does not start.
    pub fn start() -> Server {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("dalsegno-pgtest-{}-{count}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        drop(fs::remove_dir_all(&dir));
        let lock_path = dir.with_extension("lock");
        let lock = open_lock(&lock_path);
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        let port = make(&dir);
        watch(&lock_path, &dir, 0);
        launch(&dir, port);
        Server {
            dir,
            port,
            _lock: lock,
        }
    }

    /// Its address, with a schema that is this call's own.
    pub fn url(&self) -> String {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let unique = format!("{}_{count}_{}", std::process::id(), since.as_micros());
        self.url_of(&format!("test_{unique}"))
    }

    /// Its address, with this schema.
    pub fn url_of(&self, schema: &str) -> String {
        let port = self.port;
        format!("postgres://postgres@127.0.0.1:{port}/postgres?schema={schema}")
    }

    /// The number that a query gives in the schema of an address.
    ///
    /// # Panics
    /// It gives none.
    pub fn number(&self, url: &str, sql: &str) -> u64 {
        let text = self.sql(url, sql);
        text.trim()
            .parse()
            .unwrap_or_else(|_| panic!("{sql}: {text}"))
    }

    /// What psql answers to statements in the schema of an address.
    ///
    /// # Panics
    /// The server refuses them.
    pub fn sql(&self, url: &str, sql: &str) -> String {
        let (address, schema) = url.split_once("?schema=").unwrap_or((url, "public"));
        let mut psql = as_postgres("psql");
        psql.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            address,
        ]);
        psql.env("PGOPTIONS", format!("-c search_path={schema}"));
        psql.args(["-c", sql]).stdout(Stdio::piped());
        psql.stderr(Stdio::piped());
        let output = psql.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{sql}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What it has logged.
    ///
    /// # Panics
    /// The log cannot be read.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.dir.join("log")).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Its port on the loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Lets it encrypt connections, with a certificate for a host that a new root has signed. The
    /// root's file.
    ///
    /// # Panics
    /// There is no `openssl`, or the server does not take it.
    pub fn encrypt(&self, host: &str) -> PathBuf {
        let openssl = |args: &str| {
            let mut command = Command::new("openssl");
            command.args(args.split(' ')).current_dir(&self.dir);
            command.stdin(Stdio::null()).stdout(Stdio::null());
            run(command.stderr(Stdio::null()), "openssl");
        };
        let key = "-newkey rsa:2048 -nodes";
        openssl(&format!(
            "req -x509 {key} -keyout root.key -out root.pem -subj /CN=root -days 2"
        ));
        openssl(&format!(
            "req {key} -keyout data/server.key -out server.csr -subj /CN={host}"
        ));
        fs::write(self.dir.join("names"), format!("subjectAltName=DNS:{host}")).unwrap();
        let signed = "-CA root.pem -CAkey root.key -CAcreateserial -days 2 -extfile names";
        openssl(&format!(
            "x509 -req -in server.csr {signed} -out data/server.crt"
        ));
        for name in ["server.key", "server.crt"] {
            let path = self.dir.join("data").join(name);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            if rustix::process::getuid().as_raw() == ROOT {
                let (uid, gid) = postgres_user();
                chown(&path, Some(uid), Some(gid)).unwrap();
            }
        }
        let url = self.url();
        self.sql(&url, "ALTER SYSTEM SET ssl = on");
        self.sql(&url, "SELECT pg_reload_conf()");
        self.dir.join("root.pem")
    }

    /// Stops it as a power cut would: nothing is written that was not yet.
    ///
    /// # Panics
    /// It did not stop.
    pub fn stop_at_once(&self) {
        let data = self.dir.join("data");
        let mut stop = as_postgres("pg_ctl");
        stop.args(["stop", "-m", "immediate", "-w", "-D"]).arg(data);
        run(&mut stop, "pg_ctl stop");
    }

    /// Starts it again after [`Server::stop_at_once`].
    ///
    /// # Panics
    /// It does not start.
    pub fn start_again(&self) {
        launch(&self.dir, self.port);
    }
}

fn open_lock(path: &Path) -> File {
    let mut options = File::options();
    let options = options.create(true).truncate(false).read(true).write(true);
    options.open(path).unwrap()
}

fn read_port(dir: &Path) -> Option<u16> {
    let mut text = String::new();
    let mut file = File::open(dir.join("port")).ok()?;
    file.read_to_string(&mut text).ok()?;
    text.parse().ok()
}

fn answers(port: u16) -> bool {
    std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// Makes a data folder; the port that its server will have.
fn make(dir: &Path) -> u16 {
    fs::create_dir_all(dir).unwrap();
    if rustix::process::getuid().as_raw() == ROOT {
        let (uid, gid) = postgres_user();
        chown(dir, Some(uid), Some(gid)).unwrap();
    }
    let data = dir.join("data");
    let mut initdb = as_postgres("initdb");
    // Without syncs: what is made here may be lost with the machine.
    initdb.args(["-N", "-U", "postgres", "-A", "trust", "-E", "UTF8"]);
    initdb.args(["--locale=C", "-D"]).arg(&data);
    run(&mut initdb, "initdb");
    let mut hba = File::create(data.join("pg_hba.conf")).unwrap();
    // Whose name begins so has to know a password.
    writeln!(hba, "host all needs_password 127.0.0.1/32 scram-sha-256").unwrap();
    writeln!(hba, "host all all 127.0.0.1/32 trust").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn launch(dir: &Path, port: u16) {
    let options = format!(
        "-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=on \
         -c synchronous_commit=on -c max_connections=200 -c shared_buffers=64MB"
    );
    let mut start = as_postgres("pg_ctl");
    start.args(["start", "-w", "-t", "60", "-s", "-D"]);
    start.arg(dir.join("data"));
    start.arg("-l").arg(dir.join("log")).args(["-o", &options]);
    run(&mut start, "pg_ctl start");
}

#[allow(clippy::zombie_processes)] // It waits for the end of this process.
fn watch(lock: &Path, dir: &Path, grace_s: u32) {
    let mut watch = Command::new("setsid");
    watch.args(["sh", "-c", WATCH, "watch"]).arg(lock).arg(dir);
    watch.arg(grace_s.to_string()).current_dir("/");
    watch.stdin(Stdio::null());
    watch.stdout(Stdio::null()).stderr(Stdio::null());
    watch.spawn().expect("setsid and flock of util-linux");
}

fn run(command: &mut Command, what: &str) {
    // Not to a pipe: the server would keep it open.
    let status = command.status().unwrap();
    assert!(status.success(), "{what}: {status}");
}

/// A program of PostgreSQL, as a user that it accepts.
fn as_postgres(program: &str) -> Command {
    let path = newest_programs().join(program);
    let mut command = Command::new(path);
    command.env("LC_ALL", "C").current_dir("/");
    command.stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    if rustix::process::getuid().as_raw() == ROOT {
        let (uid, gid) = postgres_user();
        command.uid(uid).gid(gid);
    }
    command
}

fn newest_programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql");
    let versions = versions.expect("PostgreSQL in /usr/lib/postgresql: install postgresql");
    let numbered = versions.filter_map(|entry| {
        let entry = entry.ok()?;
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((number, entry.path().join("bin")))
    });
    let newest = numbered.max().expect("a version of PostgreSQL");
    newest.1
}

/// Whom a server runs as if we are root: itself, or nobody.
fn postgres_user() -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let of = |name: &str| {
        let line = users.lines().find(|line| {
            let mut parts = line.split(':');
            parts.next() == Some(name)
        })?;
        let mut numbers = line.split(':').skip(2).map(|part| part.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    };
    of("postgres").or_else(|| of("nobody")).unwrap()
}
