//! Ranks that were started by who speaks PMIx: by a test, with a library in C that stands for PMIx's, and by
//! Open MPI's `mpirun`, where it is there.

use isometry_fabric::model::NodeId;
use isometry_fabric::{Config, Error, Fabric, Handlers, KEY, PMIX, RANK, ROOT, SIZE};
use rustix::system::uname;
use std::env;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// The variable that tells a process that it is a rank.
const CHILD: &str = "ISOMETRY_TEST_PMIX";

const FAKE: &str = include_str!("pmix/fake.c");

fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

/// What a rank does: joins the others twice, with words put in between, and says where.
fn rank() -> Result<(), Error> {
    for _ in 0..2 {
        let mut config = Config::from_variables(variable)?;
        config.segment_bytes = 4096;
        println!("\nrank {} of {} at {}", config.rank, config.size, config.root);
        if variable(CHILD).is_some_and(|what| what == "told") {
            println!("key {}", String::from_utf8_lossy(&config.key));
            continue;
        }
        let fabric = Fabric::join(&config, Handlers::new())?;
        let (me, size) = (fabric.rank().0, fabric.size());
        for peer in (0..size).map(NodeId) {
            fabric.put_word(peer, 8 * u64::from(me), u64::from(me) + 1)?;
        }
        fabric.barrier()?;
        let words = (0..size).map(|from| fabric.get_word(NodeId(me), 8 * u64::from(from)));
        assert_eq!(words.sum::<Result<u64, _>>()?, u64::from(size * (size + 1) / 2));
        fabric.barrier()?;
    }
    Ok(())
}

/// Runs as a rank where this process is one.
fn is_rank() -> bool {
    let is_rank = variable(CHILD).is_some();
    if is_rank && let Err(error) = rank() {
        println!("\nerror {error}");
    }
    is_rank
}

/// This test again, as a rank.
fn again(command: &mut Command, test: &str, what: &str) {
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, what);
    [ROOT, RANK, SIZE, KEY, PMIX].iter().for_each(|name| _ = command.env_remove(name));
}

/// What ranks said that starts with `with`, in order.
fn said(outputs: &[Output], with: &str) -> Vec<String> {
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let all: Vec<_> = outputs.iter().map(text).collect();
    let lines = all.iter().flat_map(|text| text.lines()).filter_map(|line| line.strip_prefix(with));
    let mut lines: Vec<_> = lines.map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// The library that stands for PMIx's.
struct Fake {
    dir: TempDir,
}

impl Fake {
    /// `None` without a C compiler, which it says.
    fn new(test: &str) -> Option<Fake> {
        let dir = TempDir::new().unwrap();
        let source = dir.path().join("fake.c");
        std::fs::write(&source, FAKE).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]);
        let built = compiler.arg(dir.path().join("libpmix.so.2")).arg(&source).output();
        match built {
            Ok(built) => {
                assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
                Some(Fake { dir })
            }
            Err(why) => {
                println!("skipped: {test}: no C compiler: {why}");
                None
            }
        }
    }

    fn start(&self, test: &str, what: &str, rank: u32, more: &[(&str, &str)]) -> Child {
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "60"]).arg(env::current_exe().unwrap());
        again(&mut command, test, what);
        command.env(PMIX, self.dir.path().join("libpmix.so.2")).env("FAKE_DIR", self.job());
        command.envs([("PMIX_NAMESPACE", "job"), ("FAKE_SIZE", "2"), ("FAKE_LOCAL", "2")]);
        command.env("PMIX_RANK", rank.to_string()).envs(more.iter().copied());
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// What the last job left.
    fn job(&self) -> PathBuf {
        self.dir.path().join("job")
    }

    /// A job of two ranks.
    fn run(&self, test: &str, what: &str, more: &[(&str, &str)]) -> Vec<Output> {
        if self.job().exists() {
            std::fs::remove_dir_all(self.job()).unwrap();
        }
        std::fs::create_dir(self.job()).unwrap();
        let ranks = [0, 1].map(|rank| self.start(test, what, rank, more));
        ranks.into_iter().map(|rank| rank.wait_with_output().unwrap()).collect()
    }
}

#[test]
fn ranks_of_one_node_join_by_pmix_as_often_as_they_like() {
    let test = "ranks_of_one_node_join_by_pmix_as_often_as_they_like";
    if is_rank() {
        return;
    }
    let Some(fake) = Fake::new(test) else { return };
    let ran = fake.run(test, "join", &[]);
    assert_eq!(said(&ran, "error"), [""; 0]);
    let places = said(&ran, "rank ");
    for (at, place) in
        ["0 of 2 at local:", "0 of 2 at local:", "1 of 2 at local:"].iter().enumerate()
    {
        assert!(places[at].starts_with(place), "{places:?}");
    }
    assert_ne!(places[0], places[1], "each time they meet elsewhere");
    for rank in 0..2 {
        assert!(fake.job().join(format!("ended.{rank}")).exists(), "rank {rank} did not end PMIx");
    }
}

#[test]
fn ranks_of_several_nodes_meet_at_rank_0s() {
    let test = "ranks_of_several_nodes_meet_at_rank_0s";
    if is_rank() {
        return;
    }
    let Some(fake) = Fake::new(test) else { return };
    let name = uname().nodename().to_str().unwrap().to_owned();
    let is_known = (name.as_str(), 0).to_socket_addrs().is_ok();
    let what = if is_known { "join" } else { "told" };
    let ran = fake.run(test, what, &[("FAKE_LOCAL", "1")]);
    assert_eq!(said(&ran, "error"), [""; 0]);
    let places = said(&ran, &format!("rank 1 of 2 at {name}:"));
    assert!(
        places.len() == 2 && places.iter().all(|port| port.parse::<u16>().is_ok()),
        "{places:?}"
    );
    if !is_known {
        println!("skipped: the second half of {test}: this machine does not know its own name");
    }
}

#[test]
fn what_is_set_wins_over_pmix() {
    let test = "what_is_set_wins_over_pmix";
    if is_rank() {
        return;
    }
    let Some(fake) = Fake::new(test) else { return };
    let given = [(ROOT, "local:a"), (RANK, "4"), (SIZE, "5"), (KEY, "mine")];
    let ran = fake.run(test, "told", &given);
    assert_eq!(said(&ran, "rank "), ["4 of 5 at local:a"; 4]);
    let ran = fake.run(test, "told", &[(KEY, "mine")]);
    assert_eq!(said(&ran, "rank 1 of 2").len(), 2);
    assert_eq!(said(&ran, "key "), ["mine"; 4]);
}

#[test]
fn what_pmix_refuses_is_told_by_all_ranks() {
    let test = "what_pmix_refuses_is_told_by_all_ranks";
    if is_rank() {
        return;
    }
    let Some(fake) = Fake::new(test) else { return };
    let wrong = [
        (("FAKE_FAULT", "version"), "ISOMETRY_PMIX: `PMIx 2.2.5` is too old"),
        (("FAKE_FAULT", "fence"), "waiting for all ranks by PMIx: PMIx says FAKE-ERROR"),
        (("FAKE_FAULT", "commit"), "asking PMIx: PMIx says NOT-FOUND"),
        (("FAKE_FAULT", "kind"), "asking PMIx: what it says of pmix.job.size is of another kind"),
        (("FAKE_SIZE", "257"), "ISOMETRY_SIZE: 257 ranks"),
        (
            (PMIX, "/no/libpmix.so.2"),
            "ISOMETRY_PMIX: PMIX_NAMESPACE is set, but PMIx can't be loaded",
        ),
    ];
    for (setting, why) in wrong {
        let ran = fake.run(test, "told", &[setting]);
        let errors = said(&ran, "error ");
        assert!(errors.len() == 2 && errors.iter().all(|e| e.starts_with(why)), "{errors:?}");
    }
    // Where it does not say how many are of this node, they may be of others.
    let ran = fake.run(test, "told", &[("FAKE_FAULT", "local")]);
    let places = said(&ran, "rank ");
    assert!(
        places.len() == 4 && places.iter().all(|place| !place.contains("local:")),
        "{places:?}"
    );
}

/// Open MPI's `mpirun`, of version 5 or later: on the path, or as `make bench GROUP=fabric` installs it.
fn mpirun() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let installed = root.join(".venv-fabric/openmpi/bin/mpirun");
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).map(|dir| dir.join("mpirun"));
    let found = on_path.chain([installed]).find(|path| path.exists());
    let mpirun = found.ok_or("there is no mpirun")?;
    let said = Command::new(&mpirun).arg("--version").output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let version =
        said.split_whitespace().find_map(|word| word.split('.').next()?.parse::<u32>().ok());
    match said.contains("Open MPI") && version.is_some_and(|version| version >= 5) {
        true => Ok(mpirun),
        false => Err(format!("{} is not Open MPI 5: {said}", mpirun.display())),
    }
}

#[test]
fn ranks_of_mpirun_join_without_a_word() {
    let test = "ranks_of_mpirun_join_without_a_word";
    if is_rank() {
        return;
    }
    let mpirun = match mpirun() {
        Ok(mpirun) => mpirun,
        Err(why) => return println!("skipped: {test}: {why}"),
    };
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60"]).arg(mpirun);
    command
        .args(["--allow-run-as-root", "--oversubscribe", "-n", "3"])
        .arg(env::current_exe().unwrap());
    again(&mut command, test, "join");
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let places = said(&[ran], "rank ");
    let all: Vec<_> = places.iter().filter_map(|place| place.split_once(" at local:")).collect();
    let ranks: Vec<_> = all.iter().map(|(rank, _)| *rank).collect();
    assert_eq!(ranks, ["0 of 3", "0 of 3", "1 of 3", "1 of 3", "2 of 3", "2 of 3"]);
}
