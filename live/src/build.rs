// SPDX-License-Identifier: GPL-2.0-only
//! Builds the module of a changed scheduler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use baton_control::error::{Error, Result};

use crate::boundary::{self, Narrow};
use crate::elf::Object;
use crate::extract::{self, Extraction};
use crate::gates::{self, Side};
use crate::graph::{Graph, Objects};
use crate::identity::Placed;
use crate::klp;
use crate::pairs::Pairs;
use crate::vmlinux::Vmlinux;

/// The engine's sources (`live/kernel`).
const ENGINE: &[(&str, &str)] = &[
    ("engine.h", include_str!("../kernel/engine.h")),
    ("engine.c", include_str!("../kernel/engine.c")),
    ("sites.c", include_str!("../kernel/sites.c")),
    ("stacks.c", include_str!("../kernel/stacks.c")),
    ("window.c", include_str!("../kernel/window.c")),
];

/// The module's name.
pub const MODULE: &str = "baton_live";

/// A module that was built.
#[derive(Debug)]
pub struct Built {
    pub module: PathBuf,
    /// Functions of the kernel that it replaces.
    pub replaced: usize,
    /// Functions of them whose first bytes will lead to the new ones.
    pub redirected: usize,
    /// The kernel's functions that go on.
    pub kept: usize,
    /// Functions that the kernel does not have.
    pub new: Vec<String>,
}

/// What a module is built from.
pub struct Parts<'a> {
    pub release: &'a str,
    pub build_id: &'a str,
    pub changed: &'a Objects,
    pub unchanged: &'a Objects,
    pub placed: &'a [Placed],
    pub vmlinux: &'a Vmlinux,
}

impl Parts<'_> {
    /// Passes the change through the gates, and builds its module in a directory, which is made
    /// anew.
    ///
    /// # Errors
    /// A gate refuses the change, or the kernel's build fails.
    pub fn build(&self, dir: &Path) -> Result<Built> {
        let pairs = Pairs::of(self.changed, self.unchanged, self.placed, self.vmlinux)?;
        let [ours, theirs] = [self.changed, self.unchanged].map(Graph::of);
        let narrow = Narrow::of(self.unchanged, &theirs, self.placed, self.vmlinux);
        let [ours, theirs] =
            [(self.changed, ours), (self.unchanged, theirs)].map(|(objects, graph)| {
                let classes = boundary::classes(objects, &graph, &narrow);
                (objects, graph, classes)
            });
        gates::pass(&side(&ours), &side(&theirs), &pairs)?;
        let (_, graph, classes) = &ours;
        let extraction = extract::extract(self.changed, graph, classes, &pairs, self.vmlinux)?;
        let linked = self.link(&extraction, dir)?;
        let kept = classes.iter();
        Ok(Built {
            module: self.complete(&linked, dir)?,
            replaced: extraction.replaced,
            redirected: extraction.redirected,
            kept: kept.filter(|&&c| c == boundary::Class::Kept).count(),
            new: extraction.new,
        })
    }

    /// Links the objects with the engine, by the kernel's own build of modules. Returns the module,
    /// in which what the kernel does not export is yet to be resolved.
    fn link(&self, extraction: &Extraction, dir: &Path) -> Result<PathBuf> {
        let _ = fs::remove_dir_all(dir);
        fs::create_dir_all(dir)
            .map_err(|e| Error::file(format!("making {}", dir.display()), &e))?;
        let write = |name: &str, bytes: &[u8]| {
            let path = dir.join(name);
            fs::write(&path, bytes)
                .map_err(|e| Error::file(format!("writing {}", path.display()), &e))
        };
        for (name, text) in ENGINE {
            write(name, text.as_bytes())?;
        }
        let mut parts: Vec<String> = ENGINE
            .iter()
            .filter_map(|(name, _)| Some(format!("{}.o", name.strip_suffix(".c")?)))
            .collect();
        for (number, object) in extraction.objects.iter().enumerate() {
            let name = format!("part{number}.o");
            write(&format!("{name}_shipped"), &object.write())?;
            // Kbuild takes an object with this file as one that it has made.
            write(&format!(".part{number}.o.cmd"), b"")?;
            parts.push(name);
        }
        let makefile = format!(
            "obj-m := {MODULE}.o\n{MODULE}-y := {}\n\
             ccflags-y := -DBATON_BUILD_ID='\"{}\"'\n\
             $(obj)/part%.o: $(src)/part%.o_shipped\n\tcp $< $@\n",
            parts.join(" "),
            self.build_id
        );
        write("Makefile", makefile.as_bytes())?;
        let headers = format!("/lib/modules/{}/build", self.release);
        let mut make = Command::new("make");
        // What modpost does not find is not exported: it is resolved in the next step.
        make.args(["-s", "-C", &headers, "KBUILD_MODPOST_WARN=1"])
            .args(["CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"])
            .arg(format!("M={}", dir.display()));
        let messages = dir.join("messages");
        let log = fs::File::create(&messages)
            .map_err(|e| Error::file(format!("writing {}", messages.display()), &e))?;
        let status = make
            .stdout(std::process::Stdio::null())
            .stderr(log)
            .status();
        let status = status.map_err(|e| Error::file("linking the module", &e))?;
        let linked = dir.join(format!("{MODULE}.ko"));
        if status.success() && linked.exists() {
            Ok(linked)
        } else {
            Err(Error::baton(format!(
                "the module could not be linked ({status}); the messages are in {}",
                messages.display()
            )))
        }
    }

    /// Completes the module, in a directory of its own.
    fn complete(&self, linked: &Path, dir: &Path) -> Result<PathBuf> {
        let read = |path: &Path| {
            fs::read(path).map_err(|e| Error::file(format!("reading {}", path.display()), &e))
        };
        let mut module = Object::read(&read(linked)?, &linked.display().to_string())?;
        let symvers = format!("/lib/modules/{}/build/Module.symvers", self.release);
        let symvers = String::from_utf8_lossy(&read(Path::new(&symvers))?).into_owned();
        klp::complete(&mut module, &klp::exported(&symvers), self.vmlinux)?;
        let path = dir.join("module").join(format!("{MODULE}.ko"));
        fs::create_dir_all(dir.join("module"))
            .and_then(|()| fs::write(&path, module.write()))
            .map_err(|e| Error::file(format!("writing {}", path.display()), &e))?;
        Ok(path)
    }
}

fn side<'a>((objects, graph, classes): &'a (&Objects, Graph, Vec<boundary::Class>)) -> Side<'a> {
    Side {
        objects,
        graph,
        classes,
    }
}
