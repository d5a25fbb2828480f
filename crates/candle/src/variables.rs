//! The variables that are trained: their names, each once, all of one kind.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};

use candle_core::backprop::GradStore;
use candle_core::{DType, Storage, Tensor, TensorId, Var};

use crate::error::{Kind, device_name};
use crate::{Config, Error};

/// A variable that is trained.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    /// In files.
    pub key: String,
    /// In messages.
    pub name: String,
    pub var: Var,
}

/// Variables with names, in the order of these.
pub(crate) fn named(names: impl IntoIterator<Item = (String, Var)>) -> Vec<Variable> {
    let one = |(name, var): (String, Var)| Variable { key: name.clone(), name, var };
    let mut variables: Vec<_> = names.into_iter().map(one).collect();
    variables.sort_by(|a, b| a.key.cmp(&b.key));
    variables
}

/// Variables without names, in the order in which they were made: that in which `VarMap::all_vars` gives them is another one in
/// every run of a program.
pub(crate) fn numbered(mut vars: Vec<Var>) -> Vec<Variable> {
    vars.sort_by_key(|var| age(var.id()));
    vars.dedup_by_key(|var| var.id());
    let one = |(i, var): (usize, Var)| {
        let key = format!("variable {i}");
        Variable { name: format!("{key} of shape {:?}", var.dims()), key, var }
    };
    vars.into_iter().enumerate().map(one).collect()
}

/// Identities count up, but do not compare. What they give to a hasher is their number.
fn age(id: TensorId) -> u64 {
    #[derive(Default)]
    struct Number(u64);
    impl Hasher for Number {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, bytes: &[u8]) {
            bytes.iter().for_each(|&byte| self.0 = self.0.rotate_left(8) ^ u64::from(byte));
        }
        fn write_usize(&mut self, number: usize) {
            self.0 = number as u64;
        }
    }
    let mut number = Number::default();
    id.hash(&mut number);
    number.finish()
}

/// Those that are trained: not frozen, no integers, and each once, under the first of its names.
pub(crate) fn trained<M>(variables: Vec<Variable>, config: &Config<M>) -> Result<Vec<Variable>, Error> {
    let begins = |key: &str, name: &str| {
        key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    if let Some(name) =
        config.frozen.iter().find(|name| !variables.iter().any(|variable| begins(&variable.key, name)))
    {
        let known = variables.into_iter().map(|variable| variable.name).collect();
        return Err(Error::Frozen { name: name.clone(), known });
    }
    // A variable with two names is frozen by either of them.
    let frozen: HashSet<TensorId> = variables
        .iter()
        .filter(|variable| config.frozen.iter().any(|name| begins(&variable.key, name)))
        .map(|variable| variable.var.id())
        .chain(config.frozen_vars.iter().map(|var| var.id()))
        .collect();
    let mut seen = HashSet::new();
    let trained: Vec<_> = variables
        .into_iter()
        .filter(|Variable { var, .. }| {
            var.dtype().is_float() && !frozen.contains(&var.id()) && seen.insert(var.id())
        })
        .collect();
    // Those with names are in the order of these, and those without have a number each.
    if let Some(pair) = trained.windows(2).find(|pair| pair[0].key == pair[1].key) {
        return Err(Error::OneName { name: pair[0].name.clone() });
    }
    check_kinds(&trained)?;
    Ok(trained)
}

fn check_kinds(variables: &[Variable]) -> Result<(), Error> {
    let kind = |Variable { name, var, .. }: &Variable| Kind {
        name: name.clone(),
        dtype: var.dtype(),
        device: var.device().location(),
    };
    let Some(first) = variables.first() else { return Err(Error::NoVariables) };
    for variable in variables {
        let (name, dtype) = (variable.name.clone(), variable.var.dtype());
        if !matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16) {
            return Err(Error::Dtype { name, dtype });
        }
        if dtype != first.var.dtype() || !variable.var.device().same_device(first.var.device()) {
            return Err(Error::Mixed(Box::new(kind(first)), Box::new(kind(variable))));
        }
    }
    Ok(())
}

/// The gradients of the variables, in their order.
pub(crate) fn gradients(variables: &[Variable], store: &GradStore) -> Result<Vec<Tensor>, Error> {
    let missing: Vec<_> =
        variables.iter().filter(|v| store.get(&v.var).is_none()).map(|v| v.name.clone()).collect();
    if !missing.is_empty() {
        return Err(Error::NoGradient { names: missing });
    }
    let places: HashSet<_> = variables.iter().map(|v| place_of(&v.var)).collect();
    let one = |(variable, gradient): (&Variable, &Tensor)| {
        let var = &variable.var;
        let other = |what, gradient, variable_has| Error::Gradient {
            name: variable.name.clone(),
            what,
            gradient,
            variable: variable_has,
        };
        if gradient.dims() != var.dims() {
            return Err(other("shape", format!("{:?}", gradient.dims()), format!("{:?}", var.dims())));
        }
        if gradient.dtype() != var.dtype() {
            let [gradient, var] = [gradient.dtype(), var.dtype()].map(|dtype| dtype.as_str().to_string());
            return Err(other("dtype", gradient, var));
        }
        if !gradient.device().same_device(var.device()) {
            let [gradient, var] =
                [gradient.device(), var.device()].map(|device| device_name(&device.location()));
            return Err(other("device", gradient, var));
        }
        let gradient = gradient.detach().contiguous()?;
        // A gradient made by hand may be a variable itself, and must not move with it.
        Ok(if places.contains(&place_of(&gradient)) { gradient.force_contiguous()? } else { gradient })
    };
    variables.iter().filter_map(|v| Some((v, store.get(&v.var)?))).map(one).collect()
}

/// The names of the variables whose tensors hold what is not finite. It is asked where something has failed already: a tensor that
/// cannot be looked at is not named.
pub(crate) fn not_finite<'a>(
    variables: &[Variable],
    tensors: impl IntoIterator<Item = &'a Tensor>,
) -> Vec<String> {
    let finite = |tensor: &Tensor| -> candle_core::Result<bool> {
        // A number minus itself is 0; infinity and NaN are not.
        Ok(tensor.sub(tensor)?.to_dtype(DType::F32)?.sum_all()?.to_scalar::<f32>()? == 0.0)
    };
    let named = |(variable, tensor): (&Variable, &Tensor)| {
        (!finite(tensor).unwrap_or(true)).then(|| variable.name.clone())
    };
    variables.iter().zip(tensors).filter_map(named).collect()
}

/// Where the storage of a tensor is: tensors that share it have the same.
pub(crate) fn place_of(tensor: &Tensor) -> *const Storage {
    let (storage, _) = tensor.storage_and_layout();
    &raw const *storage
}
