// SPDX-License-Identifier: GPL-2.0-only
//! Random programs that the compiler accepts. They use all that the language has, and mean nothing.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

/// The program of a seed. It is always the same.
pub fn program(seed: u64) -> String {
    let mut generator = Generator {
        random: Xoshiro256PlusPlus::seed_from_u64(seed),
        out: String::new(),
        depth: 0,
        names: 0,
        parameters: Vec::new(),
        thread: Vec::new(),
        core: Vec::new(),
        queues: Vec::new(),
        functions: Vec::new(),
        has_timer: false,
    };
    generator.policy(seed);
    generator.out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Int,
    Time,
    Bool,
    Level,
    Core,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Int, Self::Time, Self::Bool, Self::Level, Self::Core];

    fn text(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::Time => "time",
            Self::Bool => "bool",
            Self::Level => "level",
            Self::Core => "core",
        }
    }
}

/// What a body may use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Of what it is given only.
    Pure,
    Place,
    Observe,
    Balance,
    /// Attributes of a thread change, without a lock.
    Hint,
    Lock,
}

/// The names that are known at a place.
#[derive(Clone)]
struct Scope {
    phase: Phase,
    locals: Vec<(String, Kind)>,
    threads: Vec<String>,
    /// Locals that a statement may change.
    variables: Vec<(String, Kind)>,
    /// Queues are not walked again in a walk of one.
    in_walk: bool,
    sets_timer: bool,
    /// A function with a value changes no attributes.
    has_value: bool,
}

impl Scope {
    fn new(phase: Phase) -> Self {
        Self {
            phase,
            locals: Vec::new(),
            threads: Vec::new(),
            variables: Vec::new(),
            in_walk: false,
            sets_timer: false,
            has_value: false,
        }
    }

    fn with_thread(mut self, name: &str) -> Self {
        self.threads.push(name.into());
        self
    }

    fn with_core(mut self, name: &str) -> Self {
        self.locals.push((name.into(), Kind::Core));
        self
    }

    fn with_timer(mut self) -> Self {
        self.sets_timer = true;
        self
    }

    fn observes(&self) -> bool {
        self.phase != Phase::Pure
    }
}

struct Function {
    name: String,
    parameters: Vec<Kind>,
    /// With a thread as its first parameter.
    takes_thread: bool,
    result: Option<Kind>,
    phase: Phase,
}

struct Generator {
    random: Xoshiro256PlusPlus,
    out: String,
    depth: usize,
    names: usize,
    /// Those that are above 0, and others.
    parameters: Vec<(String, Kind)>,
    thread: Vec<(String, Kind)>,
    core: Vec<(String, Kind)>,
    queues: Vec<String>,
    functions: Vec<Function>,
    has_timer: bool,
}

/// Words of Rust, and names that the code which the compiler writes has for its own use.
const WORDS: [&str; 14] = [
    "argument0",
    "at",
    "balance",
    "fn",
    "left",
    "match",
    "most",
    "moved",
    "next",
    "queue",
    "seen",
    "to",
    "value",
    "wake",
];

impl Generator {
    fn below(&mut self, most: u64) -> u64 {
        self.random.next_u64() % most
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn one_of<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }

    fn kind(&mut self) -> Kind {
        self.one_of(&Kind::ALL)
    }

    /// A new name.
    fn fresh(&mut self) -> String {
        self.names += 1;
        match WORDS.get(self.names - 1) {
            Some(word) => (*word).to_owned(),
            None => format!("x{}", self.names),
        }
    }

    fn line(&mut self, text: &str) {
        self.out.push_str(&"    ".repeat(self.depth));
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn open(&mut self, text: &str) {
        self.line(text);
        self.depth += 1;
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    fn policy(&mut self, seed: u64) {
        self.line("// SPDX-License-Identifier: GPL-2.0-only");
        self.open(&format!("scheduler random_{seed} {{"));
        self.line("enum level { LOW, MIDDLE, HIGH }");
        self.line("const int MOST = 7;");
        for number in 0..self.below(4) {
            let (name, kind) = (format!("p{number}"), self.one_of(&[Kind::Int, Kind::Time]));
            let (value, range) = match kind {
                Kind::Time => (format!("{}us", 1 + self.below(5000)), "1us .. 1s"),
                _ => (format!("{}", 1 + self.below(50)), "1 .. 1000"),
            };
            self.line(&format!(
                "param {} {name} = {value} in {range};",
                kind.text()
            ));
            self.parameters.push((name, kind));
        }
        self.has_timer = self.chance(50);
        self.declarations();
        for number in 0..self.below(5) {
            self.function(number);
        }
        self.placed("new");
        self.placed("unblock");
        self.leaves("preempt");
        if self.chance(50) {
            self.leaves("yield");
        }
        for event in ["block", "terminate", "tick", "depart", "arrive"] {
            if self.chance(60) {
                self.open(&format!("on {event}(thread t) {{"));
                let mut scope = Scope::new(Phase::Lock).with_thread("t");
                scope.sets_timer = event == "tick" && self.has_timer;
                self.block(3, &mut scope);
                self.close();
            }
        }
        for event in ["entry", "exit"] {
            if self.chance(30) {
                self.open(&format!("on {event}(core c) {{"));
                self.block(2, &mut Scope::new(Phase::Lock).with_core("c"));
                self.close();
            }
        }
        if self.has_timer {
            self.open("on timer(core c) {");
            self.block(3, &mut Scope::new(Phase::Lock).with_core("c").with_timer());
            self.close();
        }
        self.schedule();
        if self.chance(80) {
            self.steal();
        }
        for number in 0..self.below(3) {
            self.hint(number);
        }
        self.close();
    }

    fn hint(&mut self, number: u64) {
        let mut scope = Scope::new(Phase::Hint).with_thread("t");
        let mut fields = vec!["thread t".to_owned()];
        for _ in 0..self.below(4) {
            let kind = self.one_of(&[Kind::Int, Kind::Time, Kind::Bool, Kind::Level]);
            self.names += WORDS.len();
            let name = self.fresh();
            let range = match kind {
                Kind::Int => format!(" in -{} .. {}", self.below(3), self.below(9)),
                Kind::Time => format!(" in 0ns .. {}ns", self.below(9)),
                _ => String::new(),
            };
            fields.push(format!("{} {name}{range}", kind.text()));
            scope.locals.push((name, kind));
        }
        self.open(&format!("hint h{number}({}) {{", fields.join(", ")));
        self.block(4, &mut scope);
        self.close();
    }

    fn declarations(&mut self) {
        self.open("thread {");
        if self.chance(50) {
            let load = 1 + self.below(20);
            self.line(&format!("int load = {load};"));
            self.thread.push(("load".into(), Kind::Int));
        }
        for number in 0..1 + self.below(4) {
            let (name, kind) = (format!("a{number}"), self.kind());
            let initial = self.initial(kind);
            self.line(&format!("{} {name}{initial};", kind.text()));
            self.thread.push((name, kind));
        }
        self.close();
        self.open("core {");
        self.line("RUNNING thread current;");
        for number in 0..1 + self.below(3) {
            let name = format!("q{number}");
            let by: Vec<String> = self
                .thread
                .iter()
                .filter(|(_, kind)| matches!(kind, Kind::Int | Kind::Time))
                .map(|(name, _)| name.clone())
                .collect();
            if !by.is_empty() && self.chance(50) {
                let (which, by) = (self.one_of(&["lowest", "highest"]), self.one_of(&by));
                self.line(&format!("READY queue {name} order {which} {by};"));
            } else {
                self.line(&format!("READY queue {name};"));
            }
            self.queues.push(name);
        }
        for number in 0..self.below(4) {
            let (name, kind) = (format!("b{number}"), self.kind());
            let initial = self.initial(kind);
            self.line(&format!("{} {name}{initial};", kind.text()));
            self.core.push((name, kind));
        }
        self.close();
    }

    /// The value that an attribute is declared with, or none.
    fn initial(&mut self, kind: Kind) -> String {
        if self.chance(50) {
            return String::new();
        }
        match kind {
            Kind::Int => format!(" = {}", self.below(100)),
            Kind::Time => format!(" = {}us", self.below(1000)),
            Kind::Bool => " = true".into(),
            Kind::Level => " = MIDDLE".into(),
            Kind::Core => String::new(),
        }
    }

    fn function(&mut self, number: u64) {
        let phase = self.one_of(&[Phase::Pure, Phase::Observe, Phase::Lock]);
        let result = match self.chance(70) {
            true => Some(self.one_of(&[Kind::Int, Kind::Time, Kind::Bool])),
            false if phase == Phase::Lock => None,
            false => Some(Kind::Int),
        };
        let takes_thread = self.chance(50);
        let kinds: Vec<Kind> = (0..self.below(3)).map(|_| self.kind()).collect();
        let mut scope = Scope::new(phase);
        scope.has_value = result.is_some();
        let mut parameters = Vec::new();
        if takes_thread {
            parameters.push("thread t".to_owned());
            scope.threads.push("t".into());
        }
        for kind in &kinds {
            let name = self.fresh();
            parameters.push(format!("{} {name}", kind.text()));
            scope.locals.push((name.clone(), *kind));
            scope.variables.push((name, *kind));
        }
        let (name, kind) = (format!("f{number}"), result.map_or("void", Kind::text));
        self.open(&format!("{kind} {name}({}) {{", parameters.join(", ")));
        self.block(3, &mut scope);
        if let Some(kind) = result {
            if self.chance(30) {
                let condition = self.expr(Kind::Bool, 2, &scope);
                let value = self.expr(kind, 1, &scope);
                self.line(&format!("if ({condition}) return {value};"));
            }
            let value = self.expr(kind, 2, &scope);
            self.line(&format!("return {value};"));
        }
        self.close();
        self.functions.push(Function {
            name,
            parameters: kinds,
            takes_thread,
            result,
            phase,
        });
    }

    /// A handler that chooses a core for a thread.
    fn placed(&mut self, event: &str) {
        self.open(&format!("on {event}(thread t) {{"));
        let mut update = Scope::new(Phase::Lock).with_thread("t");
        let mut core = String::new();
        if self.chance(80) {
            let mut observing = Scope::new(Phase::Place).with_thread("t");
            self.block(2, &mut observing);
            let chosen = if self.chance(60) {
                self.first_core(&observing)
            } else {
                self.expr(Kind::Core, 1, &observing)
            };
            self.line(&format!("core chosen = {chosen};"));
            update.locals.push(("chosen".into(), Kind::Core));
            core = "chosen.".into();
        }
        // The first statement that changes something begins the other phase.
        let (attribute, kind) = self.one_of(&self.thread.clone());
        let value = self.assigned(kind, &update);
        self.line(&format!("t.{attribute} = {value};"));
        self.block(3, &mut update);
        self.queued(&core, &update);
        self.close();
    }

    fn leaves(&mut self, event: &str) {
        self.open(&format!("on {event}(thread t) {{"));
        let mut scope = Scope::new(Phase::Lock).with_thread("t");
        self.block(3, &mut scope);
        self.queued("", &scope);
        self.close();
    }

    /// Moves `t` to a queue of a core.
    fn queued(&mut self, core: &str, scope: &Scope) {
        let queues = self.queues.clone();
        let (a, b) = (self.one_of(&queues), self.one_of(&queues));
        if self.chance(40) {
            let condition = self.expr(Kind::Bool, 2, scope);
            self.line(&format!(
                "if ({condition}) t => {core}{a}; else t => {core}{b};"
            ));
        } else {
            self.line(&format!("t => {core}{a};"));
        }
    }

    fn schedule(&mut self) {
        self.open("on schedule(core c) {");
        let mut scope = Scope::new(Phase::Lock).with_core("c");
        scope.sets_timer = self.has_timer;
        self.block(2, &mut scope);
        let queues = self.queues.clone();
        let names: Vec<String> = queues.iter().map(|_| self.fresh()).collect();
        for (name, queue) in names.iter().zip(&queues) {
            self.line(&format!("thread {name} = first({queue});"));
        }
        // A thread that waits in any queue is found.
        for (number, name) in names.iter().enumerate() {
            let is_last = number + 1 == names.len();
            let within = scope.clone().with_thread(name);
            let condition = if self.chance(30) && is_last {
                format!(" && {}", self.part(2, &within))
            } else {
                String::new()
            };
            self.open(&format!("if (valid({name}){condition}) {{"));
            self.block(1, &mut within.clone());
            let slice = self.expr(Kind::Time, 2, &within);
            self.line(&format!("{name} => current for max(200us, {slice});"));
            self.depth -= 1;
            self.open("} else {");
        }
        let last = &names[names.len() - 1];
        self.line(&format!("{last} => current;"));
        for _ in &names {
            self.close();
        }
        self.close();
    }

    fn steal(&mut self) {
        self.open("steal {");
        let observing = Scope::new(Phase::Observe);
        let both = observing.clone().with_core("src").with_core("dst");
        self.open("can_steal_core(core src, core dst) {");
        let condition = self.expr(Kind::Bool, 3, &both);
        self.line(&format!("count(src) > 1 || {condition}"));
        self.close();
        self.open("select_core(cores stealable, core dst) {");
        if self.chance(40) {
            let member = self.fresh();
            let scope = observing.clone().with_core("dst").with_core(&member);
            let condition = self.expr(Kind::Bool, 2, &scope);
            let order = self.order();
            self.open(&format!("foreach ({member} in stealable{order}) {{"));
            self.line(&format!("if ({condition}) return {member};"));
            self.close();
        }
        let order = self.order();
        self.line(&format!("return first(stealable{order});"));
        self.close();
        self.open("steal_thread(core src, core dst, thread t) {");
        let mut scope = Scope::new(Phase::Lock).with_thread("t");
        scope = scope.with_core("src").with_core("dst");
        self.block(2, &mut scope);
        let (condition, queue) = (
            self.expr(Kind::Bool, 3, &scope),
            self.one_of(&self.queues.clone()),
        );
        self.line(&format!("if ({condition}) t => dst.{queue};"));
        self.close();
        self.open("until(core dst) {");
        let condition = self.expr(Kind::Bool, 2, &observing.with_core("dst"));
        self.line(&condition);
        self.close();
        self.close();
        for event in ["newly_idle", "balancing"] {
            self.open(&format!("on {event}(core c) {{"));
            let mut scope = Scope::new(Phase::Balance).with_core("c");
            self.block(1, &mut scope);
            if self.chance(70) {
                self.line("steal_for(c);");
            }
            if self.chance(50) {
                let domain = self.fresh();
                self.open(&format!("foreach ({domain} in domains(c)) {{"));
                self.inner(1, &scope);
                self.line(&format!("steal_for(c, {domain});"));
                self.breaks(&scope);
                self.close();
            }
            if self.chance(50) {
                let (member, set, order) = (self.fresh(), self.cores(&scope), self.order());
                let within = scope.clone().with_core(&member);
                let condition = self.expr(Kind::Bool, 2, &within);
                self.line(&format!(
                    "foreach ({member} in {set}{order}) if ({condition}) steal_for({member});"
                ));
            }
            self.close();
        }
    }

    // --- Statements ---

    fn block(&mut self, most: u64, scope: &mut Scope) {
        for _ in 0..self.below(most + 1) {
            self.statement(most, scope);
        }
    }

    fn inner(&mut self, most: u64, scope: &Scope) {
        let mut inner = scope.clone();
        self.block(most.saturating_sub(1), &mut inner);
    }

    fn statement(&mut self, most: u64, scope: &mut Scope) {
        let has_lock = scope.phase == Phase::Lock;
        let changes = has_lock && !scope.has_value;
        match self.below(12) {
            0 | 1 => {
                let kind = self.kind();
                // What one phase observed is not known in the other, and a core that is chosen is
                // moved to.
                if kind == Kind::Core && scope.phase == Phase::Place || !can(kind, scope) {
                    return;
                }
                let (value, name) = (self.expr(kind, 2, scope), self.fresh());
                self.line(&format!("{} {name} = {value};", kind.text()));
                scope.locals.push((name.clone(), kind));
                scope.variables.push((name, kind));
            }
            2 if !scope.variables.is_empty() => {
                let (name, kind) = self.one_of(&scope.variables.clone());
                let value = self.assigned(kind, scope);
                let sign = match kind {
                    Kind::Int | Kind::Time if scope.phase != Phase::Hint => {
                        self.one_of(&["=", "+=", "-="])
                    }
                    _ => "=",
                };
                self.line(&format!("{name} {sign} {value};"));
            }
            3 | 4 if (changes || scope.phase == Phase::Hint) && !scope.threads.is_empty() => {
                let (thread, (name, kind)) = (
                    self.one_of(&scope.threads.clone()),
                    self.one_of(&self.thread.clone()),
                );
                if !changes && (!can(kind, scope) || name == "load") {
                    return;
                }
                let value = if kind == Kind::Int && changes && self.chance(3) {
                    // It grows until it is too large.
                    format!("{thread}.{name} * {thread}.weight + 1")
                } else {
                    self.assigned(kind, scope)
                };
                self.line(&format!("{thread}.{name} = {value};"));
            }
            5 | 6 if changes && !self.core.is_empty() => {
                let (name, kind) = self.one_of(&self.core.clone());
                let value = self.assigned(kind, scope);
                self.line(&format!("{name} = {value};"));
            }
            7 if most > 0 => {
                let condition = self.expr(Kind::Bool, 2, scope);
                self.open(&format!("if ({condition}) {{"));
                self.inner(most, scope);
                if self.chance(50) {
                    self.depth -= 1;
                    self.open("} else {");
                    self.inner(most, scope);
                }
                self.close();
            }
            8 if most > 0 && scope.observes() => self.walk_cores(most, scope),
            9 if most > 0 && has_lock && !scope.in_walk => {
                let (name, queue) = (self.fresh(), self.one_of(&self.queues.clone()));
                let mut inner = scope.clone().with_thread(&name);
                inner.in_walk = true;
                self.open(&format!("foreach ({name} in {queue}) {{"));
                self.inner(most, &inner);
                self.breaks(&inner);
                self.close();
            }
            10 if changes && self.chance(20) => self.line("resched();"),
            10 if scope.sets_timer => {
                let after = self.expr(Kind::Time, 1, scope);
                self.line(&format!("set_timer(max(50us, {after}));"));
            }
            10 if scope.observes() && most > 0 && scope.phase != Phase::Place => {
                let mut inner = scope.clone();
                let mut tests = Vec::new();
                for _ in 0..1 + self.below(2) {
                    let (name, core) = (self.fresh(), self.first_core(scope));
                    self.line(&format!("core {name} = {core};"));
                    tests.push(format!("valid({name})"));
                    inner = inner.with_core(&name);
                }
                if self.chance(50) {
                    tests.push(self.part(1, &inner));
                }
                self.open(&format!("if ({}) {{", tests.join(" && ")));
                self.inner(most, &inner);
                self.close();
            }
            11 if !scope.has_value => {
                if let Some(call) = self.call(None, 2, scope) {
                    self.line(&format!("{call};"));
                }
            }
            _ if has_lock && most > 0 => {
                // A name that is known to be there is not tested again.
                let is_known = scope.threads.iter().any(|it| it == "current");
                let current = !is_known && self.chance(50);
                let (name, thread) = if current {
                    ("current".to_owned(), None)
                } else {
                    (self.fresh(), Some(self.one_of(&self.queues.clone())))
                };
                if let Some(queue) = thread {
                    self.line(&format!("thread {name} = first({queue});"));
                }
                let inner = scope.clone().with_thread(&name);
                self.open(&format!("if (valid({name})) {{"));
                self.inner(most, &inner);
                self.close();
            }
            _ => {}
        }
    }

    fn walk_cores(&mut self, most: u64, scope: &Scope) {
        if can(Kind::Core, scope) && self.chance(30) {
            return self.walk_domains(most, scope);
        }
        let (name, set, order) = (self.fresh(), self.cores(scope), self.order());
        let inner = scope.clone().with_core(&name);
        self.open(&format!("foreach ({name} in {set}{order}) {{"));
        self.inner(most, &inner);
        self.breaks(&inner);
        self.close();
    }

    fn walk_domains(&mut self, most: u64, scope: &Scope) {
        let (domain, of) = (self.fresh(), self.expr(Kind::Core, 1, scope));
        self.open(&format!("foreach ({domain} in domains({of})) {{"));
        let (name, order) = (self.fresh(), self.order());
        self.open(&format!("foreach ({name} in {domain}{order}) {{"));
        let inner = scope.clone().with_core(&name);
        self.inner(most, &inner);
        self.breaks(&inner);
        self.close();
        self.breaks(scope);
        self.close();
    }

    fn breaks(&mut self, scope: &Scope) {
        if self.chance(30) {
            let condition = self.expr(Kind::Bool, 1, scope);
            self.line(&format!("if ({condition}) break;"));
        }
    }

    /// A value that is assigned to an attribute. It does not grow without end, mostly.
    fn assigned(&mut self, kind: Kind, scope: &Scope) -> String {
        if !can(kind, scope) {
            return "self".into();
        }
        let value = self.expr(kind, 2, scope);
        match kind {
            _ if scope.phase == Phase::Hint => value,
            Kind::Int if !self.chance(10) => format!("({value}) % 10007"),
            Kind::Time if !self.chance(10) => format!("({value}) % 10ms"),
            _ => value,
        }
    }

    // --- Expressions ---

    /// A part of a condition of several that must all hold.
    fn part(&mut self, depth: u64, scope: &Scope) -> String {
        let part = self.expr(Kind::Bool, depth, scope);
        if part.contains("||") {
            format!("({part})")
        } else {
            part
        }
    }

    fn cores(&mut self, scope: &Scope) -> String {
        let has_core = can(Kind::Core, scope);
        match self.below(if has_core { 5 } else { 2 }) {
            0 => "system_cores()".into(),
            1 => "idle_cores()".into(),
            which => {
                let core = self.expr(Kind::Core, 1, scope);
                let set = ["llc", "node", "siblings"][which as usize - 2];
                format!("{set}({core})")
            }
        }
    }

    fn order(&mut self) -> String {
        if self.chance(50) {
            let which = self.one_of(&["lowest", "highest"]);
            format!(" order {which} {}", self.one_of(&["cload", "count"]))
        } else {
            String::new()
        }
    }

    fn first_core(&mut self, scope: &Scope) -> String {
        let (set, order) = (self.cores(scope), self.order());
        format!("first({set}{order})")
    }

    /// A call of a function with this result.
    fn call(&mut self, result: Option<Kind>, depth: u64, scope: &Scope) -> Option<String> {
        if scope.phase == Phase::Hint {
            return None;
        }
        let fits = |it: &&Function| {
            let is_known = match it.phase {
                Phase::Pure => true,
                Phase::Observe => scope.observes(),
                _ => scope.phase == Phase::Lock,
            };
            let has_cores = !it.parameters.contains(&Kind::Core) || can(Kind::Core, scope);
            let has_thread = !it.takes_thread || !scope.threads.is_empty();
            it.result == result && is_known && has_cores && has_thread
        };
        let found: Vec<usize> = (0..self.functions.len())
            .filter(|index| fits(&&self.functions[*index]))
            .collect();
        if found.is_empty() {
            return None;
        }
        let index = self.one_of(&found);
        let mut arguments = Vec::new();
        if self.functions[index].takes_thread {
            arguments.push(self.one_of(&scope.threads));
        }
        for kind in self.functions[index].parameters.clone() {
            arguments.push(self.expr(kind, depth.saturating_sub(1), scope));
        }
        let name = &self.functions[index].name;
        Some(format!("{name}({})", arguments.join(", ")))
    }

    /// An expression of this kind. Only what [`can`] be.
    fn expr(&mut self, kind: Kind, depth: u64, scope: &Scope) -> String {
        if depth > 0
            && self.chance(15)
            && let Some(call) = self.call(Some(kind), depth, scope)
        {
            return call;
        }
        let known = self.known(kind, scope);
        if !known.is_empty() && self.chance(if depth == 0 { 80 } else { 35 }) {
            return self.one_of(&known);
        }
        match kind {
            Kind::Int => self.int(depth, scope),
            Kind::Time => self.time(depth, scope),
            Kind::Bool => self.bool(depth, scope),
            Kind::Level => self.one_of(&["LOW", "MIDDLE", "HIGH"]).into(),
            Kind::Core => self.one_of(&known),
        }
    }

    /// What has a name.
    fn known(&mut self, kind: Kind, scope: &Scope) -> Vec<String> {
        let of = |list: &[(String, Kind)], before: &str| -> Vec<String> {
            let fitting = list.iter().filter(|(_, of)| *of == kind);
            fitting.map(|(name, _)| format!("{before}{name}")).collect()
        };
        let mut known = of(&scope.locals, "");
        known.extend(of(&self.parameters, ""));
        for thread in &scope.threads {
            known.extend(of(&self.thread, &format!("{thread}.")));
            match kind {
                Kind::Int => known.extend(["nice", "weight"].map(|it| format!("{thread}.{it}"))),
                Kind::Time => known.push(format!("{thread}.runtime")),
                _ => {}
            }
        }
        if scope.phase == Phase::Lock {
            known.extend(of(&self.core, ""));
        }
        match (kind, scope.phase) {
            (Kind::Core, Phase::Lock) => known.push("self".into()),
            (Kind::Core, Phase::Place) => known.extend(["t.core", "waker()"].map(String::from)),
            (Kind::Bool, Phase::Place) => known.push("is_sync()".into()),
            (Kind::Int, _) => known.push("MOST".into()),
            _ => {}
        }
        known
    }

    fn positive(&mut self, scope: &Scope) -> String {
        let ints: Vec<String> = self
            .parameters
            .iter()
            .filter(|(_, kind)| *kind == Kind::Int)
            .map(|(name, _)| name.clone())
            .collect();
        match self.below(4) {
            0 if !ints.is_empty() => self.one_of(&ints),
            1 if !scope.threads.is_empty() => {
                format!("{}.weight", self.one_of(&scope.threads.clone()))
            }
            2 => format!("max(1, {})", self.expr(Kind::Int, 1, scope)),
            _ => format!("{}", 1 + self.below(30)),
        }
    }

    fn int(&mut self, depth: u64, scope: &Scope) -> String {
        if depth == 0 {
            return format!("{}", self.below(60));
        }
        let deeper = depth - 1;
        // A hint does not compute.
        let which = match (scope.phase, can(Kind::Core, scope)) {
            (Phase::Hint, true) => self.one_of(&[0, 1, 4, 5]),
            (Phase::Hint, false) => self.one_of(&[0, 4, 5]),
            _ => self.below(11),
        };
        match which {
            0 => format!("{}", self.below(2000)),
            1 | 2 if scope.observes() && can(Kind::Core, scope) => {
                let core = self.expr(Kind::Core, deeper, scope);
                if self.chance(50) {
                    format!("count({core})")
                } else {
                    format!("{core}.cload")
                }
            }
            3 if scope.phase == Phase::Lock => {
                format!("count({})", self.one_of(&self.queues.clone()))
            }
            4 if scope.observes() => format!("random({})", self.expr(Kind::Int, deeper, scope)),
            5 => {
                let which = self.one_of(&["min", "max"]);
                let (a, b) = (
                    self.expr(Kind::Int, deeper, scope),
                    self.expr(Kind::Int, deeper, scope),
                );
                format!("{which}({a}, {b})")
            }
            6 => {
                let sign = self.one_of(&["/", "%"]);
                let (a, b) = (self.expr(Kind::Int, deeper, scope), self.positive(scope));
                format!("({a}) {sign} {b}")
            }
            7 => {
                let by = if self.chance(80) {
                    self.below(40).to_string()
                } else {
                    self.expr_in(Kind::Int, deeper, scope)
                };
                format!("({}) * {by}", self.expr(Kind::Int, deeper, scope))
            }
            8 => format!("{} / 10us", self.expr_in(Kind::Time, deeper, scope)),
            9 => format!("-({})", self.expr(Kind::Int, deeper, scope)),
            _ => {
                let sign = self.one_of(&["+", "-"]);
                let (a, b) = (
                    self.expr(Kind::Int, deeper, scope),
                    self.expr(Kind::Int, deeper, scope),
                );
                if self.chance(50) {
                    format!("{a} {sign} {b}")
                } else {
                    format!("({a} {sign} ({b}))")
                }
            }
        }
    }

    fn expr_in(&mut self, kind: Kind, depth: u64, scope: &Scope) -> String {
        format!("({})", self.expr(kind, depth, scope))
    }

    fn time(&mut self, depth: u64, scope: &Scope) -> String {
        let unit = self.one_of(&["ns", "us"]);
        let literal = format!("{}{unit}", self.below(3000));
        if depth == 0 {
            return literal;
        }
        let deeper = depth - 1;
        let which = match scope.phase {
            Phase::Hint => self.one_of(&[0, 1, 6]),
            _ => self.below(7),
        };
        match which {
            0 if scope.observes() => "now()".into(),
            1 => {
                let which = self.one_of(&["min", "max"]);
                let (a, b) = (
                    self.expr(Kind::Time, deeper, scope),
                    self.expr(Kind::Time, deeper, scope),
                );
                format!("{which}({a}, {b})")
            }
            2 => {
                let (a, b) = (
                    self.expr_in(Kind::Time, deeper, scope),
                    self.positive(scope),
                );
                format!("{a} / {b}")
            }
            3 => format!(
                "{} * {}",
                self.expr_in(Kind::Time, deeper, scope),
                self.below(30)
            ),
            4 | 5 => {
                let sign = self.one_of(&["+", "-"]);
                let (a, b) = (
                    self.expr(Kind::Time, deeper, scope),
                    self.expr_in(Kind::Time, deeper, scope),
                );
                format!("{a} {sign} {b}")
            }
            _ => literal,
        }
    }

    fn bool(&mut self, depth: u64, scope: &Scope) -> String {
        if depth == 0 {
            return self.one_of(&["true", "false"]).into();
        }
        let deeper = depth - 1;
        match self.below(8) {
            0 => format!("!({})", self.expr(Kind::Bool, deeper, scope)),
            1 | 2 => {
                let sign = self.one_of(&["&&", "||"]);
                let (a, b) = (
                    self.expr(Kind::Bool, deeper, scope),
                    self.expr(Kind::Bool, deeper, scope),
                );
                if self.chance(50) {
                    format!("{a} {sign} ({b})")
                } else {
                    format!("({a} {sign} {b})")
                }
            }
            3 => {
                let kind = self.one_of(&[Kind::Bool, Kind::Level, Kind::Core]);
                let kind = if can(kind, scope) { kind } else { Kind::Level };
                let sign = self.one_of(&["==", "!="]);
                let (a, b) = (
                    self.expr_in(kind, deeper, scope),
                    self.expr_in(kind, deeper, scope),
                );
                format!("{a} {sign} {b}")
            }
            4 if scope.observes() => format!("valid({})", self.first_core(scope)),
            5 if scope.phase == Phase::Lock => {
                format!("valid(first({}))", self.one_of(&self.queues.clone()))
            }
            _ => {
                let kind = self.one_of(&[Kind::Int, Kind::Time]);
                let sign = self.one_of(&["==", "!=", "<", "<=", ">", ">="]);
                let (a, b) = (
                    self.expr(kind, deeper, scope),
                    self.expr(kind, deeper, scope),
                );
                format!("{a} {sign} {b}")
            }
        }
    }
}

/// Is there a value of this kind?
fn can(kind: Kind, scope: &Scope) -> bool {
    kind != Kind::Core
        || matches!(scope.phase, Phase::Lock | Phase::Place)
        || scope.locals.iter().any(|(_, of)| *of == Kind::Core)
}
