//! Tokens → [`Module`].

use std::collections::HashMap;

use super::{
    Error, Function, Initial, Instruction, Location, Module, Operand, Space, Statement, Type,
    Variable,
    lexer::{Token, tokens},
};

type Result<T> = std::result::Result<T, Error>;

/// A nesting deeper than any compiler's output, so that hostile text ends in an error and not in a stack overflow.
const DEEPEST: u32 = 64;

/// The greatest alignment that a variable may ask for.
const LARGEST_ALIGNMENT: u32 = 4096;

/// More elements than any initialiser or register declaration has.
const LARGEST: u64 = 1 << 40;

pub(super) fn parse(text: &str) -> Result<Module> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        location: Location::default(),
        inlined: HashMap::new(),
        depth: 0,
        module: Module::default(),
    };
    while parser.at < parser.tokens.len() {
        parser.module_item()?;
    }
    Ok(parser.module)
}

struct Parser<'a> {
    tokens: Vec<(Token<'a>, u32)>,
    at: usize,
    location: Location,
    /// Places within inlined functions, and the outermost place that each was inlined at last.
    inlined: HashMap<[u32; 3], [u32; 3]>,
    depth: u32,
    module: Module,
}

/// What a constant expression in an initialiser comes to.
enum Constant {
    Integer(i128),
    Single(u32),
    Double(u64),
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).map(|t| t.0)
    }

    fn line(&self) -> u32 {
        self.tokens
            .get(self.at)
            .or(self.tokens.last())
            .map_or(1, |t| t.1)
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(Error::new(self.line(), message))
    }

    fn unexpected<T>(&self, wanted: &str) -> Result<T> {
        let got = match self.peek() {
            Some(Token::Word(w)) => format!("`{w}`"),
            Some(Token::Quoted(q)) => format!("\"{q}\""),
            Some(Token::Mark(m)) => format!("`{m}`"),
            None => "the end of the text".into(),
        };
        self.error(format!("expected {wanted}, got {got}"))
    }

    fn word(&mut self, wanted: &str) -> Result<&'a str> {
        match self.peek() {
            Some(Token::Word(w)) => {
                self.at += 1;
                Ok(w)
            }
            _ => self.unexpected(wanted),
        }
    }

    fn take(&mut self, mark: char) -> bool {
        let found = self.peek() == Some(Token::Mark(mark));
        self.at += usize::from(found);
        found
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(Token::Word(word));
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, mark: char) -> Result<()> {
        if self.take(mark) {
            Ok(())
        } else {
            self.unexpected(&format!("`{mark}`"))
        }
    }

    fn module_item(&mut self) -> Result<()> {
        let mut external = false;
        loop {
            let directive = self.word("a directive")?;
            match directive {
                ".visible" | ".weak" | ".common" => {}
                ".extern" => external = true,
                ".version" => {
                    let text = self.word("a version")?;
                    let version = text
                        .split_once('.')
                        .and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
                    match version {
                        Some(version) => self.module.version = version,
                        None => return self.error(format!("`{text}` is not a version")),
                    }
                    return Ok(());
                }
                ".target" => {
                    self.module.target = self.word("a target")?.to_string();
                    while self.take(',') {
                        self.word("a target option")?;
                    }
                    return Ok(());
                }
                ".address_size" => {
                    return match self.word("an address size")? {
                        "64" => Ok(()),
                        other => {
                            self.error(format!("address size {other} is not supported, only 64"))
                        }
                    };
                }
                ".file" => return self.file(),
                ".section" => return self.skip_section(),
                ".loc" => return self.location(),
                ".pragma" | ".alias" => return self.skip_statement(),
                ".entry" => return self.function(true),
                ".func" => return self.function(false),
                ".global" | ".const" | ".shared" => {
                    let variable = self.variable(directive, external)?;
                    self.module.variables.push(variable);
                    return self.expect(';');
                }
                word => {
                    self.at -= 1;
                    return self.error(format!("`{word}` is not known at module scope"));
                }
            }
        }
    }

    fn file(&mut self) -> Result<()> {
        let index = self.unsigned("a file number")?;
        let Some(Token::Quoted(name)) = self.peek() else {
            return self.unexpected("a file name");
        };
        self.at += 1;
        self.module.files.push((index, name.to_string()));
        // Time stamp and size.
        while self.take(',') {
            self.word("a number")?;
        }
        Ok(())
    }

    fn skip_section(&mut self) -> Result<()> {
        self.word("a section name")?;
        self.expect('{')?;
        while !self.take('}') {
            if self.at >= self.tokens.len() {
                return self.error("section without an end");
            }
            self.at += 1;
        }
        Ok(())
    }

    fn skip_statement(&mut self) -> Result<()> {
        while !self.take(';') {
            if self.at >= self.tokens.len() {
                return self.unexpected("`;`");
            }
            self.at += 1;
        }
        Ok(())
    }

    /// `.loc file line column`, and where that was inlined. What is kept is the outermost place: the line of the
    /// kernel, not that of a header far from it.
    fn location(&mut self) -> Result<()> {
        let place = self.place()?;
        let mut outermost = place;
        while self.take(',') {
            match self.word("`function_name` or `inlined_at`")? {
                "function_name" => {
                    self.word("a label")?;
                    if self.take('+') {
                        self.unsigned("an offset")?;
                    }
                }
                "inlined_at" => {
                    let caller = self.place()?;
                    // The caller was itself met as a location, with the place where it was inlined.
                    outermost = self.inlined.get(&caller).copied().unwrap_or(caller);
                    self.inlined.insert(place, outermost);
                }
                other => return self.error(format!("`{other}` is not known in .loc")),
            }
        }
        if outermost == place {
            self.inlined.remove(&place);
        }
        let [file, line, _] = outermost;
        self.location = Location { file, line };
        Ok(())
    }

    /// File, line and column.
    fn place(&mut self) -> Result<[u32; 3]> {
        Ok([
            self.unsigned("a file number")?,
            self.unsigned("a line")?,
            self.unsigned("a column")?,
        ])
    }

    fn unsigned(&mut self, wanted: &str) -> Result<u32> {
        let word = self.word(wanted)?;
        match integer(word).and_then(|n| u32::try_from(n).ok()) {
            Some(n) => Ok(n),
            None => {
                self.at -= 1;
                self.unexpected(wanted)
            }
        }
    }

    fn function(&mut self, entry: bool) -> Result<()> {
        let line = self.line();
        let returns = if self.peek() == Some(Token::Mark('(')) {
            self.parameters()?
        } else {
            Vec::new()
        };
        let name = self.word("a function name")?.to_string();
        let params = if self.peek() == Some(Token::Mark('(')) {
            self.parameters()?
        } else {
            Vec::new()
        };
        let mut max_threads = None;
        self.location = Location::default();
        let body = loop {
            match self.peek() {
                Some(Token::Mark(';')) => {
                    self.at += 1;
                    break None;
                }
                Some(Token::Mark('{')) => {
                    self.at += 1;
                    break Some(self.block()?);
                }
                Some(Token::Word(word)) => {
                    self.at += 1;
                    match word {
                        ".maxntid" | ".reqntid" => max_threads = Some(self.extent()?),
                        ".minnctapersm" | ".maxnctapersm" | ".maxnreg" => {
                            self.unsigned("a number")?;
                        }
                        ".noreturn" => {}
                        ".pragma" => self.skip_statement()?,
                        ".loc" => self.location()?,
                        ".reqnctapercluster" | ".explicitcluster" | ".maxclusterrank" => {
                            return self.error(format!("`{word}`: clusters are not supported"));
                        }
                        _ => {
                            self.at -= 1;
                            return self.unexpected("the body of a function");
                        }
                    }
                }
                _ => return self.unexpected("the body of a function"),
            }
        };
        self.module.functions.push(Function {
            name,
            entry,
            returns,
            params,
            max_threads,
            body,
            line,
        });
        Ok(())
    }

    /// `x`, `x, y` or `x, y, z` of a performance directive: their product.
    fn extent(&mut self) -> Result<u32> {
        let mut product = self.unsigned("a number of threads")?;
        while self.take(',') {
            product = product.saturating_mul(self.unsigned("a number of threads")?);
        }
        Ok(product)
    }

    fn parameters(&mut self) -> Result<Vec<Variable>> {
        self.expect('(')?;
        let mut list = Vec::new();
        while !self.take(')') {
            match self.word("`.param`")? {
                ".param" => list.push(self.variable(".param", false)?),
                ".reg" => return self.error("parameters in registers are not supported"),
                _ => {
                    self.at -= 1;
                    return self.unexpected("`.param`");
                }
            }
            self.take(',');
        }
        Ok(list)
    }

    /// A declaration after its state space.
    fn variable(&mut self, space: &str, external: bool) -> Result<Variable> {
        let line = self.line();
        let space = match space {
            ".global" => Space::Global,
            ".const" => Space::Const,
            ".shared" => Space::Shared,
            ".local" => Space::Local,
            _ => Space::Param,
        };
        let (mut align, mut vector, mut element) = (None, 1, None);
        let name = loop {
            let word = self.word("a declaration")?;
            match word {
                ".align" => align = Some(self.unsigned("an alignment")?),
                // `.ptr` tells where a pointer parameter points: nothing that a run would use.
                ".ptr" | ".global" | ".const" | ".shared" | ".local" if space == Space::Param => {}
                ".managed" => {}
                ".v2" => vector = 2,
                ".v4" => vector = 4,
                _ if word.starts_with('.') => match Type::from_name(&word[1..]) {
                    Some(ty) => element = Some(ty),
                    None => {
                        self.at -= 1;
                        return self.error(format!("`{word}` is not known in a declaration"));
                    }
                },
                _ => break word.to_string(),
            }
        };
        let Some(element) = element else {
            return self.error(format!("`{name}` has no type"));
        };
        let mut count = 1u64;
        let mut open = false;
        while self.take('[') {
            if self.take(']') {
                open = true;
            } else {
                count = count.saturating_mul(u64::from(self.unsigned("a length")?));
                self.expect(']')?;
            }
        }
        let size = element.bytes() * vector;
        let mut bytes = if open {
            0
        } else {
            u64::from(size).saturating_mul(count)
        };
        if bytes > LARGEST {
            return self.error(format!("`{name}` is larger than any memory"));
        }
        let initial = if self.take('=') {
            let mut list = Vec::new();
            self.initialiser(element, &mut list)?;
            list
        } else {
            Vec::new()
        };
        if open {
            bytes = initial.iter().map(Initial::bytes).sum();
        }
        let align = align.unwrap_or(size.max(1));
        if !align.is_power_of_two() || align > LARGEST_ALIGNMENT {
            return self.error(format!(
                "alignment {align} of `{name}` is not a power of two up to {LARGEST_ALIGNMENT}"
            ));
        }
        Ok(Variable {
            name,
            space,
            align,
            bytes,
            initial,
            external,
            line,
        })
    }

    fn initialiser(&mut self, element: Type, out: &mut Vec<Initial>) -> Result<()> {
        if self.take('{') {
            self.nested(|p| {
                while !p.take('}') {
                    p.initialiser(element, out)?;
                    if !p.take(',') && p.peek() != Some(Token::Mark('}')) {
                        return p.unexpected("`,` or `}`");
                    }
                }
                Ok(())
            })
        } else {
            self.initial_value(element, out)
        }
    }

    fn nested<T>(&mut self, body: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == DEEPEST {
            return self.error("nested too deeply");
        }
        self.depth += 1;
        let result = body(self);
        self.depth -= 1;
        result
    }

    /// A number, `symbol`, `symbol+4`, `generic(symbol)+4` or `0xFF00(symbol)`.
    fn initial_value(&mut self, element: Type, out: &mut Vec<Initial>) -> Result<()> {
        let size = element.bytes();
        let mut shift = 0;
        let negative = self.take('-');
        let word = self.word("an initial value")?;
        let symbol = if word == "generic" {
            self.expect('(')?;
            let symbol = self.word("a symbol")?;
            self.expect(')')?;
            symbol
        } else if word.starts_with(|c: char| c.is_ascii_digit()) {
            if self.take('(') {
                // The byte of an address that the mask selects.
                let mask = integer(word).filter(|&m| m > 0);
                let Some(mask) = mask else {
                    return self.error(format!("`{word}` is not a mask"));
                };
                shift = (mask as u128).trailing_zeros();
                let symbol = if self.take_word("generic") {
                    self.expect('(')?;
                    let symbol = self.word("a symbol")?;
                    self.expect(')')?;
                    symbol
                } else {
                    self.word("a symbol")?
                };
                self.expect(')')?;
                symbol
            } else {
                let Some(value) = constant(word) else {
                    return self.error(format!("`{word}` is not a number"));
                };
                let bytes = constant_bytes(&value, negative, element);
                match out.last_mut() {
                    Some(Initial::Bytes(all)) => all.extend(bytes),
                    _ => out.push(Initial::Bytes(bytes)),
                }
                return Ok(());
            }
        } else {
            word
        };
        let mut addend = 0;
        if self.take('+') {
            let negative = self.take('-');
            let number = i64::from(self.unsigned("an offset")?);
            addend = if negative { -number } else { number };
        } else if self.take('-') {
            addend = -i64::from(self.unsigned("an offset")?);
        }
        out.push(Initial::Address {
            symbol: symbol.to_string(),
            addend,
            shift,
            bytes: size,
        });
        Ok(())
    }

    /// Statements up to the closing brace.
    fn block(&mut self) -> Result<Vec<Statement>> {
        self.nested(|p| {
            let mut list = Vec::new();
            while !p.take('}') {
                p.statement(&mut list)?;
            }
            Ok(list)
        })
    }

    fn statement(&mut self, out: &mut Vec<Statement>) -> Result<()> {
        if self.take('{') {
            let inside = self.block()?;
            out.push(Statement::Block(inside));
            return Ok(());
        }
        if self.take(';') {
            return Ok(());
        }
        let line = self.line();
        if self.take('@') {
            let negated = self.take('!');
            let predicate = self.word("a predicate")?.to_string();
            let opcode = self.word("an instruction")?;
            return self.instruction(line, Some((predicate, negated)), opcode, out);
        }
        let word = self.word("an instruction")?;
        match word {
            ".reg" => self.registers(out),
            ".local" | ".shared" | ".param" | ".global" | ".const" => {
                let variable = self.variable(word, false)?;
                out.push(Statement::Variable(variable));
                self.expect(';')
            }
            ".loc" => self.location(),
            ".pragma" => self.skip_statement(),
            _ if word.starts_with('.') => {
                self.at -= 1;
                self.error(format!("`{word}` is not known in a function"))
            }
            _ if self.take(':') => self.label(word, out),
            _ => self.instruction(line, None, word, out),
        }
    }

    fn label(&mut self, name: &str, out: &mut Vec<Statement>) -> Result<()> {
        if self.take_word(".branchtargets") {
            let mut targets = Vec::new();
            loop {
                targets.push(self.word("a label")?.to_string());
                if !self.take(',') {
                    break;
                }
            }
            out.push(Statement::Targets {
                label: name.to_string(),
                targets,
            });
            return self.expect(';');
        }
        if let Some(Token::Word(directive @ (".callprototype" | ".calltargets"))) = self.peek() {
            return self.error(format!("`{directive}`: indirect calls are not supported"));
        }
        out.push(Statement::Label(name.to_string()));
        Ok(())
    }

    fn registers(&mut self, out: &mut Vec<Statement>) -> Result<()> {
        let word = self.word("a type")?;
        let Some(ty) = word.strip_prefix('.').and_then(Type::from_name) else {
            self.at -= 1;
            return self.unexpected("a type");
        };
        loop {
            let name = self.word("a register")?.to_string();
            let count = if self.take('<') {
                let count = self.unsigned("a number of registers")?;
                self.expect('>')?;
                Some(count)
            } else {
                None
            };
            out.push(Statement::Registers { ty, name, count });
            if !self.take(',') {
                break;
            }
        }
        self.expect(';')
    }

    fn instruction(
        &mut self,
        line: u32,
        guard: Option<(String, bool)>,
        opcode: &str,
        out: &mut Vec<Statement>,
    ) -> Result<()> {
        let mut operands = Vec::new();
        while !self.take(';') {
            let operand = self.operand()?;
            operands.push(operand);
            if !self.take(',') && self.peek() != Some(Token::Mark(';')) {
                return self.unexpected("`,` or `;`");
            }
        }
        out.push(Statement::Instruction(Instruction {
            line,
            location: self.location,
            guard,
            opcode: opcode.to_string(),
            operands,
        }));
        Ok(())
    }

    fn operand(&mut self) -> Result<Operand> {
        if self.take('[') {
            return self.address();
        }
        if self.take('{') {
            return Ok(Operand::Vector(self.operands_until('}')?));
        }
        if self.take('(') {
            return Ok(Operand::List(self.operands_until(')')?));
        }
        if self.take('!') {
            return Ok(Operand::Not(self.word("a predicate")?.to_string()));
        }
        let negative = self.take('-');
        let word = self.word("an operand")?;
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return match constant(word) {
                Some(Constant::Integer(n)) => {
                    Ok(Operand::Integer(if negative { -n } else { n } as i64))
                }
                Some(Constant::Single(bits)) => {
                    Ok(Operand::Single(bits ^ (u32::from(negative) << 31)))
                }
                Some(Constant::Double(bits)) => {
                    Ok(Operand::Double(bits ^ (u64::from(negative) << 63)))
                }
                None => self.error(format!("`{word}` is not a number")),
            };
        }
        if negative {
            return self.error(format!("`-{word}` is not an operand"));
        }
        if self.take('|') {
            let second = self.word("a predicate")?;
            return Ok(Operand::Pair(word.to_string(), second.to_string()));
        }
        if let Some(offset) = self.signed_offset()? {
            return Ok(Operand::Offset(word.to_string(), offset));
        }
        Ok(Operand::Name(word.to_string()))
    }

    fn operands_until(&mut self, end: char) -> Result<Vec<Operand>> {
        self.nested(|p| {
            let mut list = Vec::new();
            while !p.take(end) {
                list.push(p.operand()?);
                if !p.take(',') && p.peek() != Some(Token::Mark(end)) {
                    return p.unexpected(&format!("`,` or `{end}`"));
                }
            }
            Ok(list)
        })
    }

    /// `base`, `base+4`, `base+-4`, `base-4` or a number, up to the closing bracket.
    fn address(&mut self) -> Result<Operand> {
        let negative = self.take('-');
        let word = self.word("an address")?;
        let operand = if word.starts_with(|c: char| c.is_ascii_digit()) {
            match integer(word) {
                Some(n) => Operand::Address(None, if negative { -n } else { n } as i64),
                None => return self.error(format!("`{word}` is not an address")),
            }
        } else {
            let offset = self.signed_offset()?.unwrap_or(0);
            Operand::Address(Some(word.to_string()), offset)
        };
        self.expect(']')?;
        Ok(operand)
    }

    fn signed_offset(&mut self) -> Result<Option<i64>> {
        let negative = if self.take('+') {
            self.take('-')
        } else if self.take('-') {
            true
        } else {
            return Ok(None);
        };
        let word = self.word("an offset")?;
        match integer(word) {
            Some(n) => Ok(Some(if negative { -n } else { n } as i64)),
            None => self.error(format!("`{word}` is not an offset")),
        }
    }
}

impl Initial {
    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Address { bytes, .. } => u64::from(*bytes),
        }
    }
}

fn integer(word: &str) -> Option<i128> {
    let word = word.strip_suffix(['U', 'u']).unwrap_or(word);
    let digits = |prefix: &str, radix| i128::from_str_radix(&word[prefix.len()..], radix).ok();
    match word.as_bytes() {
        [b'0', b'x' | b'X', ..] => digits("0x", 16),
        [b'0', b'b' | b'B', ..] => digits("0b", 2),
        [b'0', _, ..] => digits("0", 8),
        _ => word.parse().ok(),
    }
}

fn constant(word: &str) -> Option<Constant> {
    match word.as_bytes() {
        [b'0', b'f' | b'F', digits @ ..] if digits.len() == 8 => {
            u32::from_str_radix(&word[2..], 16)
                .ok()
                .map(Constant::Single)
        }
        [b'0', b'd' | b'D', digits @ ..] if digits.len() == 16 => {
            u64::from_str_radix(&word[2..], 16)
                .ok()
                .map(Constant::Double)
        }
        _ if word.contains('.') => word
            .parse::<f64>()
            .ok()
            .map(|x| Constant::Double(x.to_bits())),
        _ => integer(word).map(Constant::Integer),
    }
}

fn constant_bytes(value: &Constant, negative: bool, element: Type) -> Vec<u8> {
    let size = element.bytes() as usize;
    let bits: u128 = match (value, element) {
        (Constant::Integer(n), Type::F32) => {
            u128::from((if negative { -*n } else { *n } as f32).to_bits())
        }
        (Constant::Integer(n), Type::F64) => {
            u128::from((if negative { -*n } else { *n } as f64).to_bits())
        }
        (Constant::Integer(n), _) => (if negative { -*n } else { *n }) as u128,
        (Constant::Single(bits), Type::F64) => {
            u128::from(f64::from(f32::from_bits(*bits ^ (u32::from(negative) << 31))).to_bits())
        }
        (Constant::Single(bits), _) => u128::from(*bits ^ (u32::from(negative) << 31)),
        (Constant::Double(bits), Type::F32) => {
            u128::from((f64::from_bits(*bits ^ (u64::from(negative) << 63)) as f32).to_bits())
        }
        (Constant::Double(bits), _) => u128::from(*bits ^ (u64::from(negative) << 63)),
    };
    bits.to_le_bytes()[..size].to_vec()
}
