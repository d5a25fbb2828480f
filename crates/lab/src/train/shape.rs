//! The networks by name: their sizes, and how each is made. A new model is a variant here and a source in [`super::data`].

use std::collections::BTreeMap;

use serde_json::json;
use toml::Value;
use untuned_net::cuda::{MOST_SEQUENCES, WIDEST_HEAD};
use untuned_net::device::{Device, DeviceError};
use untuned_net::models::{Gpt, GptShape, Lstm, LstmShape, Network, T5, T5Shape};

use super::config::{Config, ConfigError, Model, Preset, known_key};
use super::device::DeviceChoice;

/// Larger sizes are slips of the finger, and their products could overflow.
const LARGEST: usize = 1 << 16;

/// A network's sizes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// GPT's.
    Gpt(GptShape),
    /// The LSTM's, and the usual length of its sequences.
    Lstm(LstmShape, usize),
    /// T5's.
    T5(T5Shape),
}

/// The usual length of the LSTM's sequences.
const BPTT: usize = 70;

/// A size that a configuration can change.
enum Slot<'a> {
    Size(&'a mut usize),
    /// A probability.
    Share(&'a mut f32),
    /// A factor of a regularizer.
    Weight(&'a mut f64),
}

impl Shape {
    /// A preset's sizes.
    pub fn preset(model: Model, preset: Preset) -> Shape {
        use Preset::{Paper, Small, Tiny};
        match (model, preset) {
            (Model::Gpt, Tiny) => Shape::Gpt(GptShape::TINY),
            (Model::Gpt, Small) => Shape::Gpt(GptShape::SMALL),
            (Model::Gpt, Paper) => Shape::Gpt(GptShape::PAPER),
            (Model::Lstm, Tiny) => Shape::Lstm(LstmShape::TINY, BPTT),
            (Model::Lstm, Small) => Shape::Lstm(LstmShape::SMALL, BPTT),
            (Model::Lstm, Paper) => Shape::Lstm(LstmShape::PAPER, BPTT),
            (Model::T5, Tiny) => Shape::T5(T5Shape::TINY),
            (Model::T5, Small) => Shape::T5(T5Shape::SMALL),
            (Model::T5, Paper) => Shape::T5(T5Shape::PAPER),
        }
    }

    /// The preset's sizes with those of the table `[shape]`. The vocabulary is the data's: see [`Shape::fitted`].
    ///
    /// # Errors
    /// Names a key that does not exist, or a size that makes no sense.
    pub fn of(config: &Config) -> Result<Shape, ConfigError> {
        let mut shape = Shape::preset(config.model, config.preset);
        let mut slots = shape.slots();
        let known: Vec<&str> = slots.iter().map(|(key, _)| *key).collect();
        for (key, value) in &config.shape {
            known_key(key, "shape.", &known, config.model.name())?;
            let slot = slots.iter_mut().find(|(name, _)| name == key);
            if let Some((key, slot)) = slot {
                set(key, slot, value)?;
            }
        }
        shape.check()?;
        Ok(shape)
    }

    /// The same sizes for this many different ids, and for T5's targets of this length.
    pub fn fitted(mut self, vocabulary: usize, targets: usize) -> Shape {
        match &mut self {
            Shape::Gpt(shape) => shape.vocabulary = vocabulary,
            Shape::Lstm(shape, _) => shape.vocabulary = vocabulary,
            Shape::T5(shape) => (shape.vocabulary, shape.targets) = (vocabulary, targets),
        }
        self
    }

    /// The network, with buffers for batches of up to `batch` sequences of up to `longest` ids.
    ///
    /// # Errors
    /// When the device has too little memory.
    pub fn network<D: Device + 'static>(
        &self,
        device: &D,
        batch: usize,
        longest: usize,
    ) -> Result<Box<dyn Network<D>>, DeviceError>
    where
        D::Buffer: Send,
        D::Ids: Send,
    {
        Ok(match *self {
            Shape::Gpt(shape) => Box::new(Gpt::new(device, shape, batch)?),
            Shape::Lstm(shape, _) => Box::new(Lstm::new(device, shape, batch, longest)?),
            Shape::T5(shape) => Box::new(T5::new(device, shape, batch)?),
        })
    }

    /// Every size by name, for a checkpoint.
    pub fn entries(mut self) -> BTreeMap<String, serde_json::Value> {
        // What the data decides.
        let fitted = match &self {
            Shape::Gpt(shape) => vec![("vocabulary", shape.vocabulary)],
            Shape::Lstm(shape, _) => vec![("vocabulary", shape.vocabulary)],
            Shape::T5(shape) => vec![("vocabulary", shape.vocabulary), ("targets", shape.targets)],
        };
        let fitted = fitted.into_iter().map(|(key, size)| (key.to_string(), json!(size)));
        let slots = self.slots();
        let entries = slots.into_iter().map(|(key, slot)| match slot {
            Slot::Size(size) => (key.to_string(), json!(*size)),
            Slot::Share(share) => (key.to_string(), json!(*share)),
            Slot::Weight(weight) => (key.to_string(), json!(*weight)),
        });
        entries.chain(fitted).collect()
    }

    /// Different ids.
    pub fn vocabulary(&self) -> usize {
        match self {
            Shape::Gpt(shape) => shape.vocabulary,
            Shape::Lstm(shape, _) => shape.vocabulary,
            Shape::T5(shape) => shape.vocabulary,
        }
    }

    /// The ids of one sequence that are seen, and those that are to be predicted.
    pub fn lengths(&self) -> (usize, usize) {
        match self {
            Shape::T5(shape) => (shape.inputs, shape.targets),
            _ => (self.longest(), self.longest()),
        }
    }

    /// The longest sequence that a text is read in when there are no batches.
    pub fn longest(&self) -> usize {
        match self {
            Shape::Gpt(shape) => shape.context,
            Shape::Lstm(_, bptt) => *bptt,
            Shape::T5(shape) => shape.inputs,
        }
    }

    /// How many ids a decoder can say: no end but for T5's.
    pub fn most_said(&self) -> usize {
        match self {
            Shape::T5(shape) => shape.targets,
            _ => usize::MAX,
        }
    }

    fn slots(&mut self) -> Vec<(&'static str, Slot<'_>)> {
        match self {
            Shape::Gpt(shape) => vec![
                ("context", Slot::Size(&mut shape.context)),
                ("blocks", Slot::Size(&mut shape.blocks)),
                ("width", Slot::Size(&mut shape.width)),
                ("heads", Slot::Size(&mut shape.heads)),
                ("dropout", Slot::Share(&mut shape.dropout)),
            ],
            Shape::Lstm(shape, bptt) => vec![
                ("bptt", Slot::Size(bptt)),
                ("embedding", Slot::Size(&mut shape.embedding)),
                ("hidden", Slot::Size(&mut shape.hidden)),
                ("layers", Slot::Size(&mut shape.layers)),
                ("drop_rows", Slot::Share(&mut shape.drop_rows)),
                ("drop_input", Slot::Share(&mut shape.drop_input)),
                ("drop_between", Slot::Share(&mut shape.drop_between)),
                ("drop_output", Slot::Share(&mut shape.drop_output)),
                ("drop_weight", Slot::Share(&mut shape.drop_weight)),
                ("activation", Slot::Weight(&mut shape.activation)),
                ("change", Slot::Weight(&mut shape.change)),
            ],
            Shape::T5(shape) => vec![
                ("vocabulary", Slot::Size(&mut shape.vocabulary)),
                ("width", Slot::Size(&mut shape.width)),
                ("heads", Slot::Size(&mut shape.heads)),
                ("head_width", Slot::Size(&mut shape.head_width)),
                ("feed_forward", Slot::Size(&mut shape.feed_forward)),
                ("layers", Slot::Size(&mut shape.layers)),
                ("inputs", Slot::Size(&mut shape.inputs)),
            ],
        }
    }

    /// Whether a device can do it: a GPU's attention has bounds.
    ///
    /// # Errors
    /// Names the size that is too large.
    pub fn check_on(&self, device: DeviceChoice, batch: usize) -> Result<(), ConfigError> {
        let (key, value, head) = match self {
            Shape::Gpt(shape) => ("shape.heads", shape.heads, shape.width / shape.heads),
            Shape::T5(shape) => ("shape.head_width", shape.head_width, shape.head_width),
            Shape::Lstm(..) => return Ok(()),
        };
        let wrong = |key: &str, value: usize, remedy: String| {
            Err(ConfigError::Value { key: key.into(), value: value.to_string(), remedy })
        };
        if device == DeviceChoice::Cpu {
            Ok(())
        } else if head > WIDEST_HEAD {
            let remedy = format!("a head has {head} columns, on a GPU at most {WIDEST_HEAD}");
            wrong(key, value, remedy)
        } else if batch > MOST_SEQUENCES {
            wrong("batch", batch, format!("give at most {MOST_SEQUENCES} on a GPU"))
        } else {
            Ok(())
        }
    }

    /// What the sizes must be to each other.
    fn check(&self) -> Result<(), ConfigError> {
        match self {
            Shape::Gpt(shape) => divides(shape.heads, shape.width),
            Shape::Lstm(..) | Shape::T5(_) => Ok(()),
        }
    }
}

/// Heads share the width.
fn divides(heads: usize, width: usize) -> Result<(), ConfigError> {
    if width.is_multiple_of(heads) {
        return Ok(());
    }
    let remedy = format!("give one that divides shape.width, {width}");
    Err(ConfigError::Value { key: "shape.heads".into(), value: heads.to_string(), remedy })
}

fn set(key: &'static str, slot: &mut Slot<'_>, value: &Value) -> Result<(), ConfigError> {
    let wrong = |remedy: &str| {
        let (key, value) = (format!("shape.{key}"), value.to_string());
        Err(ConfigError::Value { key, value, remedy: remedy.into() })
    };
    let number = value.as_float().or_else(|| value.as_integer().map(|v| v as f64));
    match slot {
        Slot::Size(size) => match value.as_integer().and_then(|v| usize::try_from(v).ok()) {
            Some(v) if (1..=LARGEST).contains(&v) => **size = v,
            _ => return wrong("give a whole number from 1 to 65536"),
        },
        Slot::Share(share) => match number {
            Some(v) if (0.0..1.0).contains(&v) => **share = v as f32,
            _ => return wrong("give a number from 0 on, below 1"),
        },
        Slot::Weight(weight) => match number {
            Some(v) if v >= 0.0 && v.is_finite() => **weight = v,
            _ => return wrong("give a number of at least 0"),
        },
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::config::Overrides;
    use super::*;

    fn of(set: &[&str]) -> Result<Shape, String> {
        let mut overrides = Overrides::default();
        for text in set {
            overrides.set(text).unwrap();
        }
        let config = Config::resolve("model = \"gpt\"\nsteps = 1", "x.toml", "x", &overrides).unwrap();
        Shape::of(&config).map_err(|e| e.to_string())
    }

    #[test]
    fn sizes_are_overridden_and_checked() {
        let Ok(Shape::Gpt(shape)) = of(&["shape.width=64", "shape.dropout=0.5", "shape.blocks=1"]) else {
            panic!("a GPT");
        };
        assert_eq!((shape.width, shape.dropout, shape.blocks, shape.heads), (64, 0.5, 1, 4));
        let entries = Shape::Gpt(shape).fitted(7, 0).entries();
        assert_eq!((&entries["width"], &entries["vocabulary"]), (&json!(64), &json!(7)));
        for (set, words) in [
            ("shape.widht=64", &["shape.widht", "did you mean `shape.width`"][..]),
            ("shape.width=0", &["shape.width", "from 1"]),
            ("shape.width=wide", &["wide", "whole number"]),
            ("shape.width=66", &["divides shape.width, 66"]),
            ("shape.dropout=1", &["below 1"]),
        ] {
            let error = of(&[set]).unwrap_err();
            assert!(words.iter().all(|w| error.contains(w)), "{words:?} in {error}");
        }
    }

    #[test]
    fn a_gpu_has_bounds_that_the_cpu_has_not() {
        use untuned_net::cuda::Precision;
        let gpu = DeviceChoice::Cuda { ordinal: 0, precision: Precision::Bf16 };
        let wide = of(&["shape.width=514", "shape.heads=2"]).unwrap();
        assert!(wide.check_on(DeviceChoice::Cpu, MOST_SEQUENCES + 1).is_ok());
        let error = wide.check_on(gpu, 1).unwrap_err().to_string();
        assert!(error.contains("shape.heads is 2") && error.contains("257 columns"), "{error}");
        let wide = Shape::T5(T5Shape { head_width: 300, ..T5Shape::TINY });
        let error = wide.check_on(gpu, 1).unwrap_err().to_string();
        assert!(error.contains("shape.head_width is 300"), "{error}");
        let usual = of(&["shape.width=512", "shape.heads=2"]).unwrap();
        assert!(usual.check_on(gpu, MOST_SEQUENCES).is_ok());
        let error = usual.check_on(gpu, MOST_SEQUENCES + 1).unwrap_err().to_string();
        assert!(error.contains("batch is 65536") && error.contains("at most 65535"), "{error}");
        for model in [Model::Gpt, Model::Lstm, Model::T5] {
            assert!(Shape::preset(model, Preset::Paper).check_on(gpu, 128).is_ok());
        }
    }
}
