//! A table in memory that any program with the Arrow C data interface reads without a copy:
//! `__arrow_c_stream__` of the Arrow PyCapsule interface. Called by `runs.rs`, which fills it.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::cast::AsArray as _;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array as _, ArrayRef, RecordBatch, RecordBatchIterator};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};

/// A value of a row.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Number(f64),
    Whole(i64),
    Text(String),
    Yes(bool),
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

/// Bytes and counts of a run are far below 2^63, and signed integers are what readers support best.
impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Whole(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Whole(number.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<bool> for Value {
    fn from(yes: bool) -> Self {
        Self::Yes(yes)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Number,
    Whole,
    Text,
    Yes,
}

/// A column that grows.
#[derive(Debug)]
enum Column {
    Number(Float64Builder),
    Whole(Int64Builder),
    Text(StringBuilder),
    Yes(BooleanBuilder),
}

impl Column {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Number => Self::Number(Float64Builder::new()),
            Kind::Whole => Self::Whole(Int64Builder::new()),
            Kind::Text => Self::Text(StringBuilder::new()),
            Kind::Yes => Self::Yes(BooleanBuilder::new()),
        }
    }

    /// Appends the value; one of another type becomes null.
    fn push(&mut self, value: Value) {
        match (self, value) {
            (Self::Number(to), Value::Number(number)) => to.append_value(number),
            (Self::Number(to), Value::Whole(number)) => to.append_value(number as f64),
            (Self::Number(to), _) => to.append_null(),
            (Self::Whole(to), Value::Whole(number)) => to.append_value(number),
            (Self::Whole(to), _) => to.append_null(),
            (Self::Text(to), Value::Text(text)) => to.append_value(text),
            (Self::Text(to), _) => to.append_null(),
            (Self::Yes(to), Value::Yes(yes)) => to.append_value(yes),
            (Self::Yes(to), _) => to.append_null(),
        }
    }

    fn finish(self) -> ArrayRef {
        match self {
            Self::Number(mut from) => Arc::new(from.finish()),
            Self::Whole(mut from) => Arc::new(from.finish()),
            Self::Text(mut from) => Arc::new(from.finish()),
            Self::Yes(mut from) => Arc::new(from.finish()),
        }
    }
}

/// Rows of a table whose columns are known.
#[derive(Debug)]
pub(crate) struct Rows {
    names: Vec<String>,
    columns: Vec<Column>,
}

impl Rows {
    pub(crate) fn new<N: Into<String>>(columns: impl IntoIterator<Item = (N, Kind)>) -> Self {
        let (names, columns) =
            columns.into_iter().map(|(name, kind)| (name.into(), Column::new(kind))).unzip();
        Self { names, columns }
    }

    /// Appends a row, in the order of the columns; what is missing is null.
    pub(crate) fn push(&mut self, values: impl IntoIterator<Item = Value>) {
        let mut values = values.into_iter();
        for column in &mut self.columns {
            column.push(values.next().unwrap_or(Value::Null));
        }
    }

    pub(crate) fn finish(self) -> Result<Table, ArrowError> {
        let arrays: Vec<ArrayRef> = self.columns.into_iter().map(Column::finish).collect();
        let fields = self.names.iter().zip(&arrays);
        let fields: Vec<Field> =
            fields.map(|(name, array)| Field::new(name, array.data_type().clone(), true)).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map(Table)
    }
}

/// A table with named columns. pyarrow, pandas, polars and duckdb take it as it is.
#[pyclass(name = "Table", module = "taut_lab", frozen)]
pub(crate) struct Table(RecordBatch);

pub(crate) fn raised(error: &ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[pymethods]
impl Table {
    /// The Arrow PyCapsule interface: a stream of one batch. `requested_schema` is ignored, as the protocol
    /// allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = RecordBatchIterator::new([Ok(self.0.clone())], self.0.schema());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), c"arrow_array_stream")
    }

    /// The same for the schema.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.0.schema().as_ref()).map_err(|error| raised(&error))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// Names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.0.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    /// The values of a column as a list.
    fn column<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let Some(array) = self.0.column_by_name(name) else {
            let names = self.column_names().join(", ");
            return Err(PyKeyError::new_err(format!("no column is called {name}; there are {names}")));
        };
        match array.data_type() {
            DataType::Float64 => {
                PyList::new(py, array.as_primitive::<Float64Type>().iter().collect::<Vec<_>>())
            }
            DataType::Int64 => PyList::new(py, array.as_primitive::<Int64Type>().iter().collect::<Vec<_>>()),
            DataType::Boolean => PyList::new(py, array.as_boolean().iter().collect::<Vec<_>>()),
            _ => PyList::new(py, array.as_string::<i32>().iter().collect::<Vec<_>>()),
        }
    }

    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        self.column(py, name)
    }

    /// All columns as lists, by name.
    fn to_pydict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for name in self.column_names() {
            all.set_item(&name, self.column(py, &name)?)?;
        }
        Ok(all)
    }

    /// As a pyarrow.Table; needs pyarrow.
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("pyarrow")?.call_method1("table", (slf,))
    }

    /// As a pandas.DataFrame; needs pandas and pyarrow.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::to_arrow(slf)?.call_method0("to_pandas")
    }

    fn __repr__(&self) -> String {
        format!("Table({} rows: {})", self.0.num_rows(), self.column_names().join(", "))
    }
}
