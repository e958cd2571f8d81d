//! The dashboard over HTTP, with stacks on a link in memory: what its address answers, to whom, and what
//! that costs the stack. `end_to_end/dash.rs` has the commands, `playground/test/dash.mjs` the page in a
//! browser.
//!
//! A program of its own: it counts the processor time of its threads.
#![allow(missing_docs, reason = "tests")]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use taut::blocking;
use taut::device::LinkCaps;
use taut_cli::dash::access::Access;
use taut_cli::dash::feed::{Feed, Make};
use taut_cli::dash::server::router;
use taut_cli::dash::watch::{Watch, Which};
use taut_cli::http_loop;
use taut_control::Client;
use taut_testbed::{Scratch, eventually, now};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const NEAR: &str = "10.0.0.1/24";
const FAR: &str = "10.0.0.2/24";
const PORT: u16 = 7_000;
const CONNECTIONS: usize = 1_000;

/// Two stacks on a link in memory, the near one with a control socket.
struct Pair {
    near: taut::Stack,
    far: taut::Stack,
    dir: Scratch,
}

impl Pair {
    fn new(test: &str) -> Self {
        let dir = Scratch::new(&format!("dash-{test}"));
        let (here, there) = taut::device::pipe(LinkCaps::offloading(1500), 4 << 20).unwrap();
        let near = taut::Stack::builder().device(here).address(NEAR).device_name("pipe0");
        let near = near.control(dir.join("s")).build().unwrap();
        let far = taut::Stack::builder().device(there).address(FAR).build().unwrap();
        Self { near, far, dir }
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("s")
    }

    fn which(&self) -> Which {
        Which::Socket(self.socket())
    }

    /// Connections from the near stack to the far one: their ends.
    fn connections(&self, count: usize) -> Vec<(blocking::TcpStream, blocking::TcpStream)> {
        let listener = blocking::TcpListener::bind(&self.far, ("10.0.0.2", PORT)).unwrap();
        let connect = |_| {
            let near = blocking::TcpStream::connect(&self.near, ("10.0.0.2", PORT)).unwrap();
            (near, listener.accept().unwrap().0)
        };
        (0..count).map(connect).collect()
    }
}

/// Threads of the page: not the stack's.
const WATCHER: &str = "watcher";

/// A dashboard at a port of this machine.
struct Page {
    at: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

impl Page {
    fn new(token: Option<&str>, which: Which, make: impl Make) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(WATCHER)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let at = listener.local_addr().unwrap();
        let access = Access::new(at, token.map(|token| token.parse().unwrap())).unwrap();
        let _in_runtime = runtime.enter();
        let service = TowerToHyperService::new(router(access, Feed::new(make), which));
        runtime.spawn(async move { http_loop::serve(&listener, service).await });
        Self { at, _runtime: runtime }
    }

    fn of(pair: &Pair, token: Option<&str>, interval_ms: u64) -> Self {
        let watch = Watch::new(pair.which(), Duration::from_millis(interval_ms));
        Self::new(token, pair.which(), watch)
    }

    /// Sends a request with these headers, and leaves the rest to the caller.
    fn ask(&self, request: &str, headers: &[&str]) -> TcpStream {
        let mut stream = TcpStream::connect(self.at).unwrap();
        // The next sample comes a hundred times as long after one as it took.
        stream.set_read_timeout(Some(Duration::from_secs(600))).unwrap();
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        stream.write_all(format!("{request} HTTP/1.1\r\n{headers}\r\n").as_bytes()).unwrap();
        stream
    }

    /// The head and the body of an answer.
    fn answer(&self, request: &str, headers: &[&str]) -> (String, String) {
        let mut text = String::new();
        self.ask(request, headers).read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{request}: {text}"));
        (head.to_ascii_lowercase(), body.to_owned())
    }

    fn get(&self, path: &str) -> (String, String) {
        self.answer(&format!("GET {path}"), &["Host: localhost"])
    }

    fn sample(&self) -> Value {
        let (head, body) = self.get("/sample");
        assert!(head.starts_with("http/1.1 200"), "{head}");
        serde_json::from_str(&body).unwrap()
    }
}

/// Reads server-sent events of an answer in chunks: lines of lengths and of other things are passed over.
fn samples(stream: TcpStream) -> impl Iterator<Item = Value> {
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    lines.filter_map(|line| Some(serde_json::from_str(line.strip_prefix("data: ")?).unwrap()))
}

#[test]
fn dash_10_the_page_is_in_the_binary_and_asks_nobody_else() {
    let pair = Pair::new("page");
    let page = Page::of(&pair, None, 100);
    for (path, kind, text) in [
        ("/", "text/html", "taut dashboard"),
        ("/style.css", "text/css", "--unsent"),
        ("/dash.js", "text/javascript", "EventSource"),
    ] {
        let (head, body) = page.get(path);
        assert!(
            head.starts_with("http/1.1 200") && head.contains(&format!("content-type: {kind}")),
            "{head}"
        );
        assert!(body.contains(text), "{path}");
        assert!(!body.contains("https://") && !body.contains("//cdn"), "{path} names another server");
        assert!(
            !body.contains("innerHTML") && !body.contains("insertAdjacentHTML"),
            "{path} makes HTML of text"
        );
        for part in
            ["default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"]
        {
            assert!(head.contains(part), "{path}: no {part} in {head}");
        }
        assert!(!head.contains("unsafe-inline"), "{head}");
        for header in
            ["x-content-type-options: nosniff", "cache-control: no-store", "referrer-policy: no-referrer"]
        {
            assert!(head.contains(header), "{path}: no {header}");
        }
    }
    assert!(page.get("/etc/passwd").0.starts_with("http/1.1 404"));
    assert!(page.answer("POST /sample", &["Host: localhost"]).0.starts_with("http/1.1 405"));
    assert!(page.answer("GET /", &[]).0.starts_with("http/1.1 40"));
}

#[test]
fn dash_08_another_name_for_this_machine_gets_nothing() {
    let pair = Pair::new("rebinding");
    let page = Page::of(&pair, None, 100);
    for path in ["/", "/sample", "/samples", "/metrics", "/nothing"] {
        let (head, body) = page.answer(&format!("GET {path}"), &["Host: evil.example:9118"]);
        assert!(head.starts_with("http/1.1 403"), "{path}: {head}");
        assert!(body.contains("http://127.0.0.1") && !body.contains("pipe0"), "{body}");
    }
    assert!(page.get("/sample").1.contains("pipe0"));
}

#[test]
fn dash_09_without_the_token_there_are_no_numbers() {
    const TOKEN: &str = "correct-horse-battery";
    let pair = Pair::new("token");
    let page = Page::of(&pair, Some(TOKEN), 100);
    for path in ["/sample", "/samples", "/metrics", "/sample?token=wrong-horse-battery"] {
        let (head, body) = page.get(path);
        assert!(head.starts_with("http/1.1 401"), "{path}: {head}");
        assert!(body.starts_with("the token is missing or wrong") && !body.contains("pipe0"), "{body}");
    }
    assert!(page.get("/").0.starts_with("http/1.1 200"), "the page has no numbers");
    assert!(page.get(&format!("/sample?token={TOKEN}")).1.contains("pipe0"));
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let (head, body) = page.answer("GET /metrics", &["Host: lab.example", &bearer]);
    assert!(head.contains("application/openmetrics-text") && body.ends_with("# EOF\n"), "{head}");
}

/// A megabyte each time, at once.
struct Large(Arc<AtomicUsize>);

impl Make for Large {
    fn wait(&self) -> Duration {
        Duration::ZERO
    }

    fn make(&mut self) -> Bytes {
        let number = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        format!("data: {{\"number\":{number},\"x\":\"{}\"}}\n\n", "x".repeat(1 << 20)).into()
    }
}

#[test]
fn dash_07_a_browser_that_does_not_read_costs_no_samples_and_then_gets_the_newest() {
    let made = Arc::new(AtomicUsize::new(0));
    let page = Page::new(None, Which::Socket("/nonexistent".into()), Large(Arc::clone(&made)));
    let stream = page.ask("GET /samples", &["Host: localhost"]);
    eventually("the first samples", || made.load(Ordering::SeqCst) > 0);
    // The kernel's buffers of a connection over loopback, and no more: it does not grow with time.
    let mut before = 0;
    eventually("no more samples for it", || {
        std::thread::sleep(Duration::from_millis(500));
        let after = made.load(Ordering::SeqCst);
        std::mem::replace(&mut before, after) == after
    });
    assert!(before < 40, "{before} MB were made for one who does not read");

    let mut fast = samples(page.ask("GET /samples", &["Host: localhost"]));
    let newest = std::iter::repeat_with(|| fast.next().unwrap()["number"].as_u64().unwrap());
    let newest = newest.take(20).last().unwrap();
    assert!(newest >= before as u64 + 20);
    // Those that were under way; then none of the twenty that it missed.
    let numbers: Vec<_> =
        samples(stream).take(before + 2).map(|sample| sample["number"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    assert!(numbers.windows(2).any(|pair| pair[1] >= pair[0] + 15), "{numbers:?}");
}

#[test]
fn dash_11_rows_are_what_the_stack_says_of_its_connections() {
    let pair = Pair::new("rows");
    let page = Page::of(&pair, None, 100);
    let ends = pair.connections(3);
    // One writes more than its peer takes; one is idle; one has received what its application does not read.
    ends[0].0.set_nonblocking(true).unwrap();
    let written = write_until_full(&ends[0].0);
    (&ends[2].1).write_all(&[7; 5_000]).unwrap();
    let mut client = Client::connect(&pair.socket()).unwrap();
    let mut steady = Vec::new();
    eventually("nothing moves", || {
        std::thread::sleep(Duration::from_millis(100));
        let now: Vec<_> = client.connections().unwrap().iter().map(|conn| conn.bytes_acked).collect();
        std::mem::replace(&mut steady, now.clone()) == now && now.iter().sum::<u64>() > 0
    });

    page.sample();
    let sample = page.sample();
    let (infos, reports) = (client.connections().unwrap(), client.reports().unwrap());
    assert_eq!(sample["all"]["connections"], 3);
    assert_eq!(
        (sample["stacks"][0]["device"].as_str(), sample["stacks"].as_array().unwrap().len()),
        (Some("pipe0"), 1)
    );
    assert!(sample["span_ns"].as_u64() >= Some(100_000_000), "{sample}");
    let rows = sample["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        let is_it = |local: SocketAddr| row["local"] == local.to_string();
        let info = infos.iter().find(|info| is_it(info.local)).unwrap();
        let report = &reports.iter().find(|report| is_it(report.local)).unwrap().report;
        for (name, place) in [("unsent", 0), ("device", 1), ("in_flight", 2)] {
            assert_eq!(row["queues"][name].as_u64(), Some(report.queues[place].bytes), "{name}: {row}");
        }
        assert_eq!(row["queues"]["unread"].as_u64(), Some(info.rcv_queue_bytes));
        assert_eq!(row["peer"], info.peer.to_string());
        assert_eq!(row["cwnd"].as_u64(), Some(info.snd_cwnd.into()));
        assert_eq!(
            row["ssthresh"].as_u64(),
            Some(u64::from(info.snd_ssthresh)).filter(|&known| known < 0x7fff_ffff)
        );
        assert_eq!(row["rtt_ns"].as_u64(), info.rtt_ns);
        assert_eq!(row["min_rtt_ns"].as_u64(), info.min_rtt_ns);
        assert_eq!(row["pacing_rate"].as_u64(), info.pacing_rate);
        assert_eq!(row["delivery_rate"].as_u64(), Some(info.delivery_rate));
        assert_eq!(row["state"], "ESTAB");
        assert_eq!((row["goodput"].as_f64(), row["retrans"].as_u64()), (Some(0.0), Some(0)), "nothing moves");
    }
    // The one that is stuck is the worst, and why is said; every byte is in one of the queues.
    let stuck = &infos.iter().find(|info| info.local == ends[0].0.local_addr().unwrap()).unwrap();
    assert_eq!(rows[0]["local"], stuck.local.to_string());
    assert_eq!((&rows[0]["held"]["reason"], &rows[0]["held"]["share"]), (&"peer-window".into(), &1.0.into()));
    let waiting: u64 =
        ["unsent", "device", "in_flight"].iter().map(|name| rows[0]["queues"][name].as_u64().unwrap()).sum();
    assert_eq!(waiting + stuck.bytes_acked, written);
    assert!(rows.iter().any(|row| row["queues"]["unread"] == 5_000), "{sample}");
}

fn write_until_full(mut stream: &blocking::TcpStream) -> u64 {
    let mut written = 0;
    let mut refused_since = now();
    // Its buffer grows while the peer takes some.
    while refused_since.elapsed() < Duration::from_millis(500) {
        match stream.write(&[1; 65_536]) {
            Ok(count) => (written, refused_since) = (written + count as u64, now()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("{error}"),
        }
    }
    written
}

/// The processor time of those of this process's threads whose name is wanted, as the scheduler counts it.
fn processor_time(is_wanted: impl Fn(&str) -> bool) -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread may end meanwhile.
    let time = |task: std::io::Result<std::fs::DirEntry>| {
        let path = task.ok()?.path();
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
        is_wanted(name.trim()).then(|| text.split_whitespace().next().unwrap().parse::<u64>().unwrap())
    };
    Duration::from_nanos(tasks.filter_map(time).sum())
}

/// That of the thread that answers questions about the stack.
fn answering() -> Duration {
    processor_time(|name| name == "taut-control")
}

/// One at a time: their stacks' threads have the same names.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn dash_12_a_thousand_connections_cost_the_stack_one_per_cent_at_most() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let pair = Pair::new("cost");
    let page = Page::of(&pair, None, 100);
    let ends = pair.connections(CONNECTIONS);
    // Each has bytes that wait: rows as long as they get.
    for (near, _) in &ends {
        near.set_nonblocking(true).unwrap();
        let mut near = near;
        for _ in 0..3 {
            _ = near.write(&[1; 65_536]);
        }
    }
    let mut seen = samples(page.ask("GET /samples", &["Host: localhost"]));
    seen.next().unwrap();
    // From sample to sample: as many questions as pauses.
    let (began, before) = (now(), answering());
    for _ in 0..4 {
        let sample = seen.next().unwrap();
        assert_eq!(sample["all"]["connections"], CONNECTIONS);
        assert_eq!(sample["rows"].as_array().unwrap().len(), CONNECTIONS);
    }
    let (time, cost) = (began.elapsed(), answering() - before);
    let share = cost.as_secs_f64() / time.as_secs_f64();
    assert!(cost > Duration::ZERO);
    assert!(share <= 0.01, "{:.2} %: {cost:?} of {time:?}", share * 100.0);
}

/// The names in the table of docs/reference/metrics.md, without those of `nstat`'s counters.
fn documented() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `taut_"));
    rows.map(|row| format!("taut_{}", row.split('`').next().unwrap().split('{').next().unwrap())).collect()
}

#[test]
fn dash_13_every_name_of_openmetrics_is_documented() {
    let pair = Pair::new("metrics");
    let page = Page::of(&pair, None, 100);
    let _ends = pair.connections(2);
    let (head, text) = page.get("/metrics");
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    let families: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# HELP ")).collect();
    let own = families.iter().filter(|help| !help.contains(" nstat's "));
    let own: BTreeSet<_> = own.map(|help| help.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(own, documented());
    let mut client = Client::connect(&pair.socket()).unwrap();
    assert_eq!(families.len() - own.len(), client.counters().unwrap().len());
    assert!(text.contains("\ntaut_connections{pid=") && text.contains("device=\"pipe0\"} 2\n"), "{text}");
    // Who asks again at once gets the same text.
    assert_eq!(page.get("/metrics").1, text);
}

/// What watching costs, beside the same load without: `make dash-bench`.
#[test]
#[ignore = "a measurement, of a minute"]
fn what_watching_costs() {
    const ROUNDS: usize = 5;
    const PART: Duration = Duration::from_secs(5);
    /// Each connection writes so much, so often: 80 MB/s in all.
    const PIECE: usize = 8_000;
    const EVERY: Duration = Duration::from_millis(100);
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let pair = Pair::new("bench");
    let page = Page::of(&pair, None, 500);
    let load = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let taken = Arc::new(AtomicUsize::new(0));
    load.block_on(async {
        let listener = pair.far.listen(([10, 0, 0, 2], PORT).into()).unwrap();
        for at in 0..CONNECTIONS {
            let (near, far) =
                tokio::join!(pair.near.connect(([10, 0, 0, 2], PORT).into()), listener.accept());
            let (mut near, (mut far, _)) = (near.unwrap(), far.unwrap());
            tokio::spawn(async move {
                tokio::time::sleep(EVERY * at as u32 / CONNECTIONS as u32).await;
                let mut ticks = tokio::time::interval(EVERY);
                loop {
                    ticks.tick().await;
                    near.write_all(&[7; PIECE]).await.unwrap();
                }
            });
            let taken = Arc::clone(&taken);
            tokio::spawn(async move {
                let mut room = vec![0; 65_536];
                loop {
                    taken.fetch_add(far.read(&mut room).await.unwrap(), Ordering::Relaxed);
                }
            });
        }
    });
    // Of a part: the processor time of all threads but the page's, of the one that answers, and the bytes
    // that arrived.
    let part = || {
        let all = || processor_time(|name| name != WATCHER);
        let (began, before) = (now(), (all(), answering(), taken.load(Ordering::Relaxed)));
        std::thread::sleep(PART);
        let time = began.elapsed().as_secs_f64();
        let share = |later: Duration, earlier: Duration| (later - earlier).as_secs_f64() / time * 100.0;
        let bytes = (taken.load(Ordering::Relaxed) - before.2) as f64 / time / 1e6;
        (share(all(), before.0), share(answering(), before.1), bytes)
    };
    std::thread::sleep(Duration::from_secs(2));
    println!("{CONNECTIONS} connections; percent of a processor; load average {}", load_average());
    println!(
        "{:>14} {:>10} {:>12} {:>10} {:>10} {:>8}",
        "", "process", "answering", "MB/s", "samples", "rows"
    );
    let mut costs = Vec::new();
    for round in 1..=ROUNDS {
        let (alone, _, bytes) = part();
        println!("{:>14} {alone:>10.2} {:>12} {bytes:>10.1}", format!("{round} alone"), "");
        let stream = page.ask("GET /samples", &["Host: localhost"]);
        let end = stream.try_clone().unwrap();
        let browser = std::thread::Builder::new().name(WATCHER.to_owned());
        let browser = browser
            .spawn(move || samples(stream).map(|sample| sample["rows"].as_array().unwrap().len()).collect());
        let (watched, answering, bytes) = part();
        end.shutdown(std::net::Shutdown::Both).unwrap();
        let rows: Vec<usize> = browser.unwrap().join().unwrap();
        println!(
            "{:>14} {watched:>10.2} {answering:>12.3} {bytes:>10.1} {:>10} {:>8}",
            format!("{round} watched"),
            rows.len(),
            // On a busy machine a sample may take so long that its pause is longer than a part.
            rows.iter().max().copied().unwrap_or(0)
        );
        costs.push((watched - alone, answering));
    }
    let middle = |mut of: Vec<f64>| {
        of.sort_by(f64::total_cmp);
        (of[ROUNDS / 2], of[0], of[ROUNDS - 1])
    };
    let (median, least, most) = middle(costs.iter().map(|cost| cost.0).collect());
    println!("difference: {median:.2} % of a processor in the median, {least:.2} to {most:.2}");
    let (median, least, most) = middle(costs.iter().map(|cost| cost.1).collect());
    println!(
        "the thread that answers: {median:.3} %, {least:.3} to {most:.3}; load average {}",
        load_average()
    );
}

fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap();
    text.split_whitespace().next().unwrap().to_owned()
}
