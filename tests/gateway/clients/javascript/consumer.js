// RabbitMQ's stream client for JavaScript reading a stream from its first message: what it writes is in ../README.md.
"use strict"

const { createHash } = require("node:crypto")
const { Offset, connect } = require("rabbitmq-stream-js-client")

const LINE = 10_000

class Lines {
  constructor(messages) {
    this.messages = messages
    this.number = 0
    this.count = 0
    this.first = 0n
    this.last = -1n
    this.hash = createHash("sha256")
    this.done = new Promise((resolve, reject) => {
      this.finish = resolve
      this.fail = reject
    })
  }

  take(message) {
    if (this.number === this.messages) return
    const offset = message.offset
    if (offset <= this.last) {
      this.fail(new Error(`offset ${offset} after ${this.last}`))
      return
    }
    if (this.count === 0) this.first = offset
    this.last = offset
    this.count++
    this.number++
    this.hash.update(encode(message))
    if (this.count === LINE || this.number === this.messages) {
      console.log(`${this.first} ${this.last} ${this.count} ${this.hash.digest("hex")}`)
      this.hash = createHash("sha256")
      this.count = 0
    }
    if (this.number === this.messages) this.finish()
  }
}

function encode(message) {
  const shop = message.messageAnnotations["x-shop"] ?? ""
  const parts = [Buffer.alloc(8)]
  parts[0].writeBigUInt64BE(message.offset)
  for (const field of [message.content, message.messageProperties.messageId ?? "", shop]) {
    const bytes = Buffer.from(field)
    const length = Buffer.alloc(4)
    length.writeUInt32BE(bytes.length)
    parts.push(length, bytes)
  }
  return Buffer.concat(parts)
}

async function main([host, port, stream, messages]) {
  const lines = new Lines(Number(messages))
  const ended = () => lines.fail(new Error("the connection has ended"))
  const client = await connect({
    hostname: host,
    port: Number(port),
    username: "guest",
    password: "guest",
    vhost: "/",
    listeners: { connection_closed: ended, metadata_update: () => lines.fail(new Error("the stream has moved")) },
  })
  const from = { stream, offset: Offset.first(), connectionClosedListener: ended }
  await client.declareConsumer(from, (message) => lines.take(message))
  await lines.done
  await client.close()
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error)
  process.exit(1)
})
