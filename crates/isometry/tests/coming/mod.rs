//! Nodes that come later, leave, and come back under their names.

use super::*;

/// How many nodes may join in all.
const CAPACITY: u32 = 8;

const SOON: Option<Duration> = Some(Duration::from_millis(10));

/// Where nodes meet: a founder, and others that come later.
struct Place {
    founders: Vec<Config>,
    later: Config,
}

impl Place {
    fn of(job: &Job, size: u32) -> Place {
        let founder = |rank| {
            let mut variables = job.variables(rank).to_vec();
            variables.push(("ISOMETRY_CAPACITY", CAPACITY.to_string()));
            from(&variables)
        };
        let later = job
            .variables(0)
            .into_iter()
            .filter(|v| !["ISOMETRY_RANK", "ISOMETRY_SIZE"].contains(&v.0));
        let later = from(&later.collect::<Vec<_>>());
        assert!(later.is_late);
        Place { founders: (0..size).map(founder).collect(), later }
    }

    fn founders(&self) -> Vec<Machine> {
        thread::scope(|scope| {
            let join = |config| scope.spawn(move || node(None).join(config).unwrap());
            let joining: Vec<_> = self.founders.iter().map(join).collect();
            joining.into_iter().map(|node| node.join().unwrap()).collect()
        })
    }

    fn comes(&self, name: Option<&str>) -> Machine {
        node(name).join(&self.later).unwrap()
    }
}

fn from(variables: &[(&'static str, String)]) -> Config {
    let lookup = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.clone());
    Config { timeout: Duration::from_secs(20), ..Config::from_variables(lookup).unwrap() }
}

fn node(name: Option<&str>) -> MachineBuilder {
    let builder = Machine::builder().assume(true).lanes(1).staging(8 << 20);
    name.into_iter().fold(builder, MachineBuilder::node_name)
}

/// Tries something with so many founders, by shared memory and by TCP.
fn at_each(size: u32, run: impl Fn(&Place, Vec<Machine>)) {
    for job in [Job::new(size).unwrap(), Job::loopback(size).unwrap()] {
        let place = Place::of(&job, size);
        let founders = place.founders();
        run(&place, founders);
    }
}

/// Something that a node publishes as `name`.
fn offered(machine: &Machine, name: &str) -> Instance {
    let rows = matrix(machine, (120, 300), "yx");
    fill(&rows);
    machine.publish(name, &rows).unwrap();
    rows
}

/// Whether a node finds `rows` under `name`, and copies them.
fn finds(machine: &Machine, name: &str, rows: &Instance) -> bool {
    let here = matrix(machine, (120, 300), "xy");
    copy(machine, &machine.lookup(name, PATIENCE).unwrap(), &here);
    is_transposed(rows, &here)
}

#[test]
fn a_node_that_comes_later_is_one_of_them() {
    at_each(1, |place, founders| {
        let rows = offered(&founders[0], "rows");
        let first = place.comes(None);
        assert_eq!((first.rank(), first.size(), founders[0].size()), (1, 2, 2));
        assert!(finds(&first, "node0/rows", &rows));
        let of_first = offered(&first, "own");
        assert!(finds(&founders[0], "node1/own", &of_first));
        // Between two others, by who came last.
        let second = place.comes(None);
        let columns = matrix(&founders[0], (120, 300), "xy");
        founders[0].publish("columns", &columns).unwrap();
        let [from, to] =
            ["node1/own", "node0/columns"].map(|n| second.lookup(n, PATIENCE).unwrap());
        copy(&second, &from, &to);
        assert!(is_transposed(&of_first, &columns));
        assert!(finds(&first, "node2/own", &offered(&second, "own")));
    });
}

#[test]
fn several_come_at_once_and_know_each_other() {
    at_each(2, |place, founders| {
        let come = |name: &'static str| {
            let machine = place.comes(Some(name));
            let rows = offered(&machine, "own");
            (machine, rows)
        };
        let names = ["a", "b", "c", "d"];
        let came: Vec<_> = thread::scope(|scope| {
            let come = &come;
            let coming: Vec<_> = names.map(|name| scope.spawn(move || come(name))).into();
            coming.into_iter().map(|node| node.join().unwrap()).collect()
        });
        for (name, (_, rows)) in names.iter().zip(&came) {
            let all = founders.iter().chain(came.iter().map(|(machine, _)| machine));
            for machine in all {
                assert!(finds(machine, &format!("{name}/own"), rows));
            }
        }
        let mut ranks: Vec<_> = came.iter().map(|(machine, _)| machine.rank()).collect();
        ranks.sort_unstable();
        assert_eq!(ranks, [2, 3, 4, 5]);
        // Founders go on among themselves.
        thread::scope(|scope| {
            founders.iter().for_each(|f| _ = scope.spawn(|| f.barrier(PATIENCE).unwrap()));
        });
        let error = came[0].0.barrier(PATIENCE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    });
}

#[test]
fn who_comes_back_under_its_name_is_another() {
    at_each(1, |place, founders| {
        let founder = &founders[0];
        let before = place.comes(Some("store"));
        assert!(finds(founder, "store/own", &offered(&before, "own")));
        let old = founder.lookup("store/own", PATIENCE).unwrap();
        drop(before);
        let here = matrix(founder, (120, 300), "yx");
        let is_lost = |instance: &Instance| {
            let copied = founder.copy(instance, &here, &CopyOptions::default());
            copied.and_then(|event| event.wait(PATIENCE)).unwrap_err().kind()
        };
        assert_eq!(is_lost(&old), ErrorKind::PeerLost);
        // Of the one with a name another may come.
        for (name, patience) in [("store/own", SOON), ("node1/own", PATIENCE)] {
            let gone = founder.lookup(name, patience).unwrap_err();
            assert_eq!(gone.kind(), ErrorKind::PeerLost, "{gone}");
        }
        let (after, of_after) = thread::scope(|scope| {
            let found = scope.spawn(|| founder.lookup("store/own", PATIENCE).unwrap());
            let after = place.comes(Some("store"));
            let rows = offered(&after, "own");
            assert_eq!(found.join().unwrap().memory().node.0, 2);
            (after, rows)
        });
        assert!(finds(founder, "store/own", &of_after));
        assert_eq!(is_lost(&old), ErrorKind::PeerLost);
        let stand = |machine: &Machine| {
            let nodes = machine.nodes().into_iter();
            nodes.map(|n| (n.node.0, n.name, n.lost.is_some())).collect::<Vec<_>>()
        };
        let store = |rank, is_lost| (rank, "store".to_owned(), is_lost);
        let first = (0, "node0".to_owned(), false);
        assert_eq!(stand(founder), [first.clone(), store(1, true), store(2, false)]);
        // It has never met the one before.
        assert_eq!(stand(&after), [first, store(2, false)]);
        let told = |machine: &Machine| exposition::samples(&machine.metrics().unwrap());
        let (of_founder, of_after) = (told(founder), told(&after));
        for peer in ["node1", "node2"] {
            let info = format!(r#"isometry_peer_info{{node="node0",peer="{peer}",name="store"}}"#);
            assert_eq!(of_founder.get(&info), Some(&1.0), "{info}");
        }
        assert_eq!(of_founder[r#"isometry_node_info{node="node0",name="node0"}"#], 1.0);
        assert_eq!(of_after[r#"isometry_node_info{node="node2",name="store"}"#], 1.0);
    });
}

#[test]
fn a_name_is_one_nodes_and_waited_for() {
    at_each(1, |place, founders| {
        let founder = &founders[0];
        thread::scope(|scope| {
            let waiting = scope.spawn(|| founder.lookup("store/own", PATIENCE));
            let store = place.comes(Some("store"));
            let rows = offered(&store, "own");
            let here = matrix(founder, (120, 300), "xy");
            copy(founder, &waiting.join().unwrap().unwrap(), &here);
            assert!(is_transposed(&rows, &here));
            let soon = Config { timeout: Duration::from_secs(2), ..place.later.clone() };
            let error = node(Some("store")).join(&soon).unwrap_err();
            let taken = ArgumentError::NodeNameTaken { name: "store".to_owned(), by: 1 };
            assert!(matches!(&error, Error::Argument(why) if *why == taken), "{error}");
            // It goes as soon as that one does.
            let another = scope.spawn(|| place.comes(Some("store")));
            drop((rows, store));
            assert!(another.join().unwrap().rank() > 1);
        });
        for name in ["node9", "", "a/b"] {
            let error = node(Some(name)).join(&place.later).unwrap_err();
            let wrong = ArgumentError::NodeName { name: name.to_owned() };
            assert!(matches!(&error, Error::Argument(why) if *why == wrong), "{error}");
        }
        let error = founder.lookup("nobody/own", SOON).unwrap_err();
        let Error::Argument(ArgumentError::NoNode { there, .. }) = &error else {
            panic!("{error}")
        };
        assert!(there.starts_with("node0, store (node1)"), "{there}");
    });
}

#[test]
fn who_comes_waits_for_those_that_were_there_and_names_them() {
    at_each(1, |place, founders| {
        let bare = || Fabric::join(&place.later, Handlers::new()).unwrap();
        let silent = bare();
        let soon = Config { timeout: Duration::from_secs(2), ..place.later.clone() };
        let error = node(None).join(&soon).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(error.to_string().contains("for ranks [1] of 3"), "{error}");
        thread::scope(|scope| {
            let coming = scope.spawn(|| place.comes(None));
            while founders[0].size() < 4 {
                thread::yield_now();
            }
            let later = bare();
            drop(silent);
            assert_eq!(coming.join().unwrap().rank(), 3);
            drop(later);
        });
    });
}

#[test]
fn others_go_on_where_one_that_came_goes() {
    at_each(2, |place, founders| {
        let rows = offered(&founders[1], "rows");
        let (goes, stays) = (place.comes(Some("goes")), place.comes(None));
        let far = offered(&goes, "own");
        assert!(finds(&stays, "goes/own", &far));
        let waits = thread::scope(|scope| {
            let waiting = scope.spawn(|| stays.lookup("node2/never", PATIENCE));
            goes.close();
            waiting.join().unwrap().unwrap_err()
        });
        assert_eq!(waits.kind(), ErrorKind::PeerLost, "{waits}");
        assert!(finds(&stays, "node1/rows", &rows));
        assert!(finds(&founders[0], "node1/rows", &rows));
        assert!(finds(&place.comes(Some("goes")), "node1/rows", &rows));
    });
}

/// By the first node, when the first of the others comes.
#[test]
fn the_link_to_one_that_comes_is_measured() {
    let kept = tempfile::tempdir().unwrap();
    let place = Place::of(&Job::loopback(1).unwrap(), 1);
    let join = |config: &Config| {
        let builder = Machine::builder().lanes(1).staging(64 << 20).cache_dir(kept.path());
        builder.join(config).unwrap()
    };
    let founder = join(&place.founders[0]);
    assert!(founder.topology().links[0].assumed);
    let nodes = [join(&place.later), join(&place.later), founder];
    for node in &nodes {
        let link = &node.topology().links[0];
        assert!(!link.assumed && link.latency_ns > 0);
        assert_eq!(*link, nodes[0].topology().links[0]);
    }
}
