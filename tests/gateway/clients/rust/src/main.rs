// RabbitMQ's stream client for Rust reading a stream from its first message: what it writes is in ../../README.md.

use futures::StreamExt;
use rabbitmq_stream_client::types::{Message, OffsetSpecification, SimpleValue, Value};
use rabbitmq_stream_client::Environment;
use sha2::{Digest, Sha256};
use std::error::Error;
use std::io::Write;

const LINE: u64 = 10_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let messages: u64 = arguments[3].parse()?;
    let environment = Environment::builder().host(&arguments[0]).port(arguments[1].parse()?).build().await?;
    let mut consumer = environment.consumer().offset(OffsetSpecification::First).build(&arguments[2]).await?;
    let (mut hash, mut first, mut last, mut count) = (Sha256::new(), 0, None, 0);
    for number in 1..=messages {
        let delivery = consumer.next().await.ok_or("the consumer has ended")??;
        let offset = delivery.offset();
        if last.is_some_and(|last| offset <= last) {
            return Err(format!("offset {offset} after {last:?}").into());
        }
        if count == 0 {
            first = offset;
        }
        last = Some(offset);
        count += 1;
        hash.update(offset.to_be_bytes());
        for field in fields(delivery.message())? {
            hash.update((field.len() as u32).to_be_bytes());
            hash.update(field);
        }
        if count == LINE || number == messages {
            println!("{first} {offset} {count} {:x}", hash.finalize_reset());
            std::io::stdout().flush()?;
            count = 0;
        }
    }
    consumer.handle().close().await?;
    Ok(())
}

fn fields(message: &Message) -> Result<[&[u8]; 3], Box<dyn Error>> {
    let body = message.data().ok_or("a message without a body")?;
    let id = match message.properties().and_then(|properties| properties.message_id.as_ref()) {
        None => "",
        Some(id) => <&String>::try_from(id).map_err(|_| "a message id that is no string")?,
    };
    let shop = match message.message_annotations().and_then(|annotations| annotations.get("x-shop")) {
        None => "",
        Some(Value::Simple(SimpleValue::String(shop))) => shop.as_ref(),
        Some(other) => return Err(format!("shop {other:?}").into()),
    };
    Ok([body, id.as_bytes(), shop.as_bytes()])
}
