//! Compiling and running selectors.

use std::sync::Arc;

use crate::check::{Checker, check_literals};
use crate::cost;
use crate::device::DeviceView;
use crate::error::{CompileError, EvalError};
use crate::eval::Evaluator;
use crate::explain::{Term, explain};
use crate::ir::Node;
use crate::parse::parse;
use crate::reads::{self, Reads};
use crate::types::Type;
use crate::value::Value;

/// The API's limit on the length of an expression, in bytes.
pub const MAX_EXPRESSION_BYTES: usize = 10 * 1024;
/// The API's limit on the worst-case and on the actual cost of an expression.
pub const MAX_COST: u64 = 1_000_000;
/// The deepest checked expression that is kept. Evaluating and dropping one recurse with
/// its depth: at this many they need well under 1 MiB of stack, also in a debug build.
const MAX_DEPTH: usize = 120;
/// The parser recurses with the length of chains: measured at up to 8 MiB for 10 KiB of
/// text. Only address space, it is not touched until needed.
const COMPILE_STACK: usize = 64 << 20;

/// A compiled device selector. Cheap to clone, evaluated on any thread.
#[derive(Debug, Clone)]
pub struct Selector {
    program: Arc<Program>,
}

#[derive(Debug)]
struct Program {
    text: String,
    root: Node,
    slots: usize,
    cost: u64,
    reads: Reads,
}

impl Selector {
    /// Parses and checks an expression, and bounds what it can cost.
    ///
    /// Short-lived work on a thread with a deep stack, which is there as a place to compute
    /// and nothing else: the parser may need 8 MiB for the longest expressions, and running
    /// out would end the process.
    ///
    /// # Errors
    /// What the API server would refuse, and what can't be judged here.
    pub fn compile(text: &str) -> Result<Self, CompileError> {
        if text.len() > MAX_EXPRESSION_BYTES {
            return Err(CompileError::TooLong { bytes: text.len() });
        }
        let program = std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().stack_size(COMPILE_STACK);
            let broken = |what: &str| CompileError::Unsupported { name: what.to_owned() };
            match builder.spawn_scoped(scope, || compile(text)) {
                Ok(thread) => {
                    thread.join().unwrap_or_else(|_| Err(broken("what the parser stumbled over")))
                }
                Err(_) => Err(broken("compiling without memory for a stack")),
            }
        })?;
        Ok(Self { program: Arc::new(program) })
    }

    /// The expression as written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.program.text
    }

    /// Its worst-case cost in the API server's units.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.program.cost
    }

    /// Whether the device matches.
    ///
    /// # Errors
    /// The evaluation ended without a verdict; the scheduler then gives the pod up.
    pub fn matches(&self, device: &DeviceView) -> Result<bool, EvalError> {
        if let Some((name, reason)) = &device.unreadable {
            return Err(EvalError::Attribute { name: name.clone(), reason: reason.clone() });
        }
        let program = &self.program;
        match Evaluator::new(device, program.slots).eval(&program.root)? {
            Value::Bool(matches) => Ok(matches),
            other => Err(EvalError::NotBool(other.type_name())),
        }
    }

    /// What of a device it reads.
    #[must_use]
    pub fn reads(&self) -> &Reads {
        &self.program.reads
    }

    /// Why the device doesn't match: the terms of the outermost `&&` that are false or fail.
    /// Empty where it matches, and where an attribute of the device can't be read at all.
    #[must_use]
    pub fn explain(&self, device: &DeviceView) -> Vec<Term> {
        if device.unreadable.is_some() {
            return Vec::new();
        }
        let program = &self.program;
        explain(&program.root, program.slots, device, &program.text)
    }
}

/// Runs on the deep stack, where the syntax tree is also dropped.
fn compile(text: &str) -> Result<Program, CompileError> {
    let (tree, info) = parse(text)?;
    let mut checker = Checker::new(&info);
    let checked = checker.check(&tree).and_then(|root| {
        check_literals(&root, &checker.types)?;
        Ok(root)
    });
    // Types that were too large to be compared have shown nothing, also no mistake.
    let root = if checker.types.exhausted() { Err(large_types()) } else { checked }?;
    let found = checker.types.known(&root.ty);
    if !matches!(found, Type::Bool | Type::Any) {
        return Err(CompileError::NotBool { found: found.to_string() });
    }
    let mut deepest = 0;
    root.each(|_, depth| deepest = deepest.max(depth));
    if deepest > MAX_DEPTH {
        return Err(CompileError::TooDeep { limit: MAX_DEPTH });
    }
    let cost = cost::estimate(&root, &checker.types, checker.slots);
    if checker.types.exhausted() {
        return Err(large_types());
    }
    if cost > MAX_COST {
        return Err(CompileError::TooCostly { cost, limit: MAX_COST });
    }
    let characters: Vec<char> = text.chars().collect();
    let reads = reads::of(&root, &characters);
    Ok(Program { text: text.to_owned(), root, slots: checker.slots, cost, reads })
}

fn large_types() -> CompileError {
    CompileError::Unsupported { name: "a type as large as this".to_owned() }
}
