//! The tables of a run as Parquet, beside the CSV and with its names and values: for programs that read
//! columns.
//!
//! The format is Apache Parquet's, version 1 pages with Snappy, which every reader supports. An empty field
//! of the CSV is null here; a column that is never empty there is required here. Behind the feature
//! `parquet`. Called by `files.rs`.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

use crate::data::{AckRow, GATES, Interval, RunData, SCHEMA};

/// The values of a column; `None` is null.
enum Values {
    Number(Vec<f64>),
    MaybeNumber(Vec<Option<f64>>),
    Whole(Vec<u64>),
    MaybeWhole(Vec<Option<u64>>),
    Text(Vec<ByteArray>),
}

/// A column and its name.
struct Column {
    name: String,
    values: Values,
}

impl Column {
    fn new(name: &str, values: Values) -> Self {
        Self { name: name.to_owned(), values }
    }

    fn schema(&self) -> Result<Arc<Type>, ParquetError> {
        let (physical, logical) = match self.values {
            Values::Number(_) | Values::MaybeNumber(_) => (Physical::DOUBLE, None),
            Values::Whole(_) | Values::MaybeWhole(_) => (Physical::INT64, None),
            Values::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let repetition = match self.values {
            Values::MaybeNumber(_) | Values::MaybeWhole(_) => Repetition::OPTIONAL,
            _ => Repetition::REQUIRED,
        };
        let column = Type::primitive_type_builder(&self.name, physical);
        column.with_repetition(repetition).with_logical_type(logical).build().map(Arc::new)
    }

    fn write(&self, to: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        match &self.values {
            Values::Number(values) => to.typed::<DoubleType>().write_batch(values, None, None),
            Values::MaybeNumber(values) => {
                let there: Vec<f64> = values.iter().flatten().copied().collect();
                to.typed::<DoubleType>().write_batch(&there, Some(&levels(values)), None)
            }
            Values::Whole(values) => {
                let values: Vec<i64> = values.iter().copied().map(signed).collect();
                to.typed::<Int64Type>().write_batch(&values, None, None)
            }
            Values::MaybeWhole(values) => {
                let there: Vec<i64> = values.iter().flatten().copied().map(signed).collect();
                to.typed::<Int64Type>().write_batch(&there, Some(&levels(values)), None)
            }
            Values::Text(values) => to.typed::<ByteArrayType>().write_batch(values, None, None),
        }
        .map(drop)
    }
}

/// Bytes and flow numbers of a run are far below 2^63, and signed integers are what readers support best.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Definition levels of a column that is not nested: 1 where there is a value.
fn levels<T>(values: &[Option<T>]) -> Vec<i16> {
    values.iter().map(|value| i16::from(value.is_some())).collect()
}

/// Writes `intervals.parquet`.
///
/// # Errors
/// Those of the file system.
pub(crate) fn intervals(path: &Path, data: &RunData) -> io::Result<()> {
    let rows: Vec<(u32, &Interval)> = data
        .series
        .iter()
        .flat_map(|series| series.points.iter().map(move |point| (series.flow, point)))
        .collect();
    let number = |name, of: fn(&Interval) -> f64| {
        Column::new(name, Values::Number(rows.iter().map(|(_, point)| of(point)).collect()))
    };
    let maybe_number = |name, of: fn(&Interval) -> Option<f64>| {
        Column::new(name, Values::MaybeNumber(rows.iter().map(|(_, point)| of(point)).collect()))
    };
    let whole = |name, of: fn(&Interval) -> u64| {
        Column::new(name, Values::Whole(rows.iter().map(|(_, point)| of(point)).collect()))
    };
    let maybe_whole = |name, of: fn(&Interval) -> Option<u64>| {
        Column::new(name, Values::MaybeWhole(rows.iter().map(|(_, point)| of(point)).collect()))
    };
    let mut columns = vec![
        number("t_s", |point| point.t_s),
        Column::new("flow", Values::Whole(rows.iter().map(|&(flow, _)| flow.into()).collect())),
        whole("unsent_bytes", |point| point.unsent_bytes),
        maybe_whole("below_tcp_bytes", |point| point.below_tcp_bytes),
        whole("qdisc_bytes", |point| point.qdisc_bytes),
        whole("ring_bytes", |point| point.ring_bytes),
        whole("device_bytes", |point| point.device_bytes),
        maybe_whole("bottleneck_bytes", |point| point.bottleneck_bytes),
        whole("in_flight_bytes", |point| point.in_flight_bytes),
        whole("cwnd_bytes", |point| point.cwnd_bytes),
        maybe_whole("ssthresh_bytes", |point| point.ssthresh_bytes),
        whole("peer_window_bytes", |point| point.peer_window_bytes),
        maybe_number("pacing_bps", |point| point.pacing_bps),
        number("delivery_bps", |point| point.delivery_bps),
        number("goodput_bps", |point| point.goodput_bps),
        maybe_number("srtt_s", |point| point.srtt_s),
    ];
    for (index, gate) in GATES.iter().enumerate() {
        let times = rows.iter().map(|(_, point)| point.blocked_s.get(index).copied()).collect();
        columns
            .push(Column::new(&format!("blocked_{}_s", gate.replace('-', "_")), Values::MaybeNumber(times)));
    }
    write(path, &columns)
}

/// Writes `acks.parquet`.
///
/// # Errors
/// Those of the file system.
pub(crate) fn acks(path: &Path, data: &RunData) -> io::Result<()> {
    let rows = &data.acks;
    let number =
        |name, of: fn(&AckRow) -> f64| Column::new(name, Values::Number(rows.iter().map(of).collect()));
    let maybe_number = |name, of: fn(&AckRow) -> Option<f64>| {
        Column::new(name, Values::MaybeNumber(rows.iter().map(of).collect()))
    };
    let whole =
        |name, of: fn(&AckRow) -> u64| Column::new(name, Values::Whole(rows.iter().map(of).collect()));
    let maybe_whole = |name, of: fn(&AckRow) -> Option<u64>| {
        Column::new(name, Values::MaybeWhole(rows.iter().map(of).collect()))
    };
    let text = |name, of: fn(&AckRow) -> &str| {
        Column::new(name, Values::Text(rows.iter().map(|row| of(row).into()).collect()))
    };
    write(
        path,
        &[
            number("t_s", |row| row.t_s),
            whole("flow", |row| row.flow.into()),
            whole("acked_bytes", |row| row.acked_bytes),
            whole("in_flight_bytes", |row| row.in_flight_bytes),
            whole("unsent_bytes", |row| row.unsent_bytes),
            whole("below_tcp_bytes", |row| row.below_tcp_bytes),
            whole("cwnd_bytes", |row| row.cwnd_bytes),
            maybe_whole("ssthresh_bytes", |row| row.ssthresh_bytes),
            whole("peer_window_bytes", |row| row.peer_window_bytes),
            maybe_number("srtt_s", |row| row.srtt_s),
            maybe_number("min_rtt_s", |row| row.min_rtt_s),
            maybe_number("pacing_bps", |row| row.pacing_bps),
            number("delivery_bps", |row| row.delivery_bps),
            text("ca_state", |row| &row.ca_state),
            text("blocked", |row| &row.blocked),
        ],
    )
}

fn write(path: &Path, columns: &[Column]) -> io::Result<()> {
    let file = File::create(path)?;
    encode(file, columns).map_err(|error| match error {
        // The file system's error is passed on unchanged.
        ParquetError::External(inner) => match inner.downcast() {
            Ok(error) => *error,
            Err(inner) => io::Error::other(inner),
        },
        error => io::Error::other(error),
    })
}

/// Writes one row group: a table is only as long as its CSV, which is held in memory.
fn encode(file: File, columns: &[Column]) -> Result<(), ParquetError> {
    let fields = columns.iter().map(Column::schema).collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder("schema").with_fields(fields).build()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("taut-lab version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(vec![KeyValue::new("taut.schema".to_owned(), SCHEMA.to_string())]))
        .build();
    let mut file = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    for column in columns {
        let Some(mut writer) = group.next_column()? else { break };
        column.write(&mut writer)?;
        writer.close()?;
    }
    group.close()?;
    file.close().map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::Field;

    use crate::data::RunSet;
    use crate::job::Outcome;
    use crate::output::files::{Directory, run_name};
    use taut_testbed::Scratch;

    use super::*;

    /// Converts the file back to the text of its CSV.
    fn as_csv(path: &Path) -> String {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        let schema = reader.metadata().file_metadata().schema();
        let names: Vec<&str> = schema.get_fields().iter().map(|field| field.name()).collect();
        let mut text = names.join(",") + "\n";
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let fields: Vec<String> = row
                .get_column_iter()
                .map(|(_, field)| match field {
                    Field::Null => String::new(),
                    Field::Double(value) => value.to_string(),
                    Field::Long(value) => value.to_string(),
                    Field::Str(value) => value.clone(),
                    other => panic!("{other:?}"),
                })
                .collect();
            text += &(fields.join(",") + "\n");
        }
        text
    }

    #[test]
    fn what_is_read_back_is_what_the_csv_says() {
        let scratch = Scratch::new("parquet");
        let out = &scratch.0;
        let mut set: RunSet = serde_json::from_str(include_str!("../../tests/example.json")).unwrap();
        let run = &mut set.runs[0];
        // Values that a kernel's TCP leaves out, and one beyond 32 bits.
        run.series[0].points[3].below_tcp_bytes = None;
        run.series[0].points[3].bottleneck_bytes = None;
        run.series[0].points[3].blocked_s.clear();
        run.acks[0].ssthresh_bytes = None;
        run.acks[1].ssthresh_bytes = Some(14_480);
        run.acks[1].acked_bytes = 5_000_000_001;
        run.acks[1].srtt_s = None;
        let place = Path::new(&set.scenario).join(run_name(run));
        let directory = Directory::new(out, &set.scenario).unwrap();
        directory.run(Outcome { data: run.clone(), ..Outcome::default() }).unwrap();
        set.runs.truncate(1);
        directory.finish(&set).unwrap();

        for table in ["intervals", "acks"] {
            let path = out.join(&place).join(table);
            let csv = fs::read_to_string(path.with_extension("csv")).unwrap();
            assert!(csv.lines().count() > 4 && csv.contains(",,"), "there is something to compare");
            assert_eq!(as_csv(&path.with_extension("parquet")), csv, "{table}");
        }
        let reader =
            SerializedFileReader::new(File::open(out.join(&place).join("acks.parquet")).unwrap()).unwrap();
        let metadata = reader.metadata().file_metadata().key_value_metadata().unwrap();
        let version = metadata.iter().find(|entry| entry.key == "taut.schema").unwrap();
        assert_eq!(version.value, Some(SCHEMA.to_string()));
    }

    #[test]
    fn an_error_is_the_file_systems() {
        let error = acks(Path::new("/nowhere/acks.parquet"), &RunData::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        // A full disk reports its error on the write.
        if Path::new("/dev/full").exists() {
            let error = acks(Path::new("/dev/full"), &RunData::default()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
        }
    }
}
