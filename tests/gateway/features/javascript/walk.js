// RabbitMQ's stream client for JavaScript doing what walks.py asks for: README.md has what it prints.
"use strict"

const { createHash } = require("node:crypto")
const { readFileSync } = require("node:fs")
const { Offset, connect } = require("rabbitmq-stream-js-client")
const { CompressionType } = require("rabbitmq-stream-js-client/dist/compression")

const KEYS = ["anna", "böri", "chloé", "東京", "e", "f", "g", "h", "ï", "j", "k", "ł"]
const [, , command, host, port, prefix, messages, argument, way, before, authority] = process.argv
const count = Number(messages)

function open() {
  const place = { hostname: host, port: Number(port), username: "guest", password: "guest", vhost: "/" }
  if (!authority) return connect(place)
  const ssl = { ca: readFileSync(authority), rejectUnauthorized: true }
  const addressResolver = { enabled: true, endpoint: { host, port: Number(port) } }
  return connect({ ...place, ssl, addressResolver, frameMax: 8192 })
}

function message(kind, number) {
  return `${kind} ${number} ${"x".repeat(900 + (number % 97))}`
}

function summary(taken) {
  const hash = createHash("sha256")
  for (const [offset, text] of taken) hash.update(`${offset} ${text}\n`)
  const [first, last] = [taken[0], taken[taken.length - 1]]
  return [taken.length, String(first?.[0]), String(last?.[0]), hash.digest("hex")].join(" ")
}

function pair(message) {
  return [message.offset, message.content.toString()]
}

// Takes messages until there are so many; more of them are its failure, seen when it is finished.
class Taken {
  constructor(wanted) {
    this.wanted = wanted
    this.pairs = []
    this.done = new Promise((resolve) => (this.finish = resolve))
  }

  take(message) {
    this.pairs.push(pair(message))
    if (this.pairs.length === this.wanted) this.finish()
  }
}

async function published(client, stream, reference, filter, sends) {
  const publisher = await client.declarePublisher({ stream, publisherRef: reference, maxChunkLength: 50 }, filter)
  const confirmed = new Set()
  publisher.on("publish_confirm", (error, ids) => {
    if (error) throw new Error(`not stored: ${error}`)
    for (const id of ids) confirmed.add(id)
  })
  await sends(publisher, async (count) => {
    while (confirmed.size < count) await new Promise((resolve) => setTimeout(resolve, 5))
    confirmed.clear()
  })
  await publisher.close()
}

async function fill(client, isThere) {
  const segments = { "stream-max-segment-size-bytes": 100_000 }
  if (!isThere) await client.createSuperStream({ streamName: `${prefix}-super`, arguments: segments })
  for (const kind of ["filtered", "packed"]) {
    await client.createStream({ stream: `${prefix}-${kind}`, arguments: segments })
  }
  // Twice, so that half of them are duplicates.
  for (let time = 0; time < 2; time++) {
    const key = (text) => text.split(" ")[0]
    const till = await client.declareSuperStreamPublisher({ superStream: `${prefix}-super`, publisherRef: "till" }, key)
    for (let number = 1; number <= count; number++) {
      const options = { publishingId: BigInt(number) }
      await till.send(Buffer.from(message(KEYS[number % KEYS.length], number)), options)
    }
    await till.close()
  }
  const region = (message) => message.applicationProperties?.region
  let middle = 0
  await published(client, `${prefix}-filtered`, undefined, region, async (publisher, confirm) => {
    for (let batch = 0; batch < count / 50; batch++) {
      const region = ["north", "south"][batch % 2]
      for (let number = 0; number < 50; number++) {
        const body = Buffer.from(message(region, batch * 50 + number))
        await publisher.send(body, { applicationProperties: { region } })
      }
      await publisher.flush()
      await confirm(50)
      if (batch === Math.floor(count / 100)) {
        await new Promise((resolve) => setTimeout(resolve, 50))
        middle = Date.now()
        await new Promise((resolve) => setTimeout(resolve, 50))
      }
    }
  })
  await published(client, `${prefix}-packed`, undefined, undefined, async (publisher, confirm) => {
    for (let batch = 0; batch < count / 50; batch++) {
      const messages = []
      for (let number = 0; number < 50; number++) {
        messages.push({ content: Buffer.from(message("packed", batch * 50 + number)) })
      }
      await publisher.sendSubEntries(messages, [CompressionType.None, CompressionType.Gzip][batch % 2])
      await confirm(1)
    }
  })
  return { middle }
}

async function readSuper(client) {
  const taken = new Taken(count)
  const superStream = { superStream: `${prefix}-super`, offset: Offset.first() }
  const consumer = await client.declareSuperStreamConsumer(superStream, (message) => taken.take(message))
  await taken.done
  await consumer.close()
  return summary(taken.pairs.sort((one, other) => (one[1] < other[1] ? -1 : 1)))
}

async function read(client, kind, wanted, offset, more = {}, finish = async () => undefined) {
  const taken = new Taken(wanted)
  const from = { stream: `${prefix}-${kind}`, offset, ...more }
  const consumer = await client.declareConsumer(from, (message) => taken.take(message))
  await taken.done
  await finish(consumer)
  await client.closeConsumer(consumer.extendedId)
  return taken.pairs
}

async function readFiltered(client) {
  const postFilterFunc = (message) => message.applicationProperties?.region === "north"
  const filter = { values: ["north"], matchUnfiltered: false, postFilterFunc }
  return summary(await read(client, "filtered", count / 2, Offset.first(), { filter }))
}

// The offsets that this client gives to messages of sub-batches are none of the stream's.
async function readPacked(client) {
  const taken = await read(client, "packed", count, Offset.first())
  return summary(taken.map(([, text]) => ["", text]))
}

async function readByTurns(client) {
  const other = await open()
  const half = count / 2
  const turns = [new Taken(half), new Taken(half)]
  let next = 0n
  const declare = (who, turn) => {
    const consumerUpdateListener = async () => Offset.offset(next)
    const group = { consumerRef: `turns-${way}`, singleActive: true, offset: Offset.first(), consumerUpdateListener }
    return who.declareConsumer({ stream: `${prefix}-filtered`, ...group }, (message) => {
      if (turns[turn].pairs.length < half) turns[turn].take(message)
    })
  }
  const one = await declare(client, 0)
  await declare(other, 1)
  await turns[0].done
  next = turns[0].pairs[half - 1][0] + 1n
  await client.closeConsumer(one.extendedId)
  await turns[1].done
  await other.close()
  return summary([...turns[0].pairs, ...turns[1].pairs])
}

async function resume(client) {
  const place = { stream: `${prefix}-filtered`, reference: `resumed-${way}` }
  const more = { consumerRef: place.reference }
  const unknown = await client.queryOffset(place).catch((error) => error.message)
  await read(client, "filtered", 120, Offset.first(), more, (consumer) => consumer.storeOffset(99n))
  let stored = 0n
  while (stored !== 99n) stored = await client.queryOffset(place).catch(() => 0n)
  const taken = await read(client, "filtered", 100, Offset.offset(stored + 1n), more)
  return `${unknown.includes("code 19") ? "no offset" : unknown}; ${summary(taken.slice(0, 100))}`
}

async function walk(client, middle) {
  const stream = `${prefix}-filtered`
  const found = {}
  const partitions = await client.queryPartitions({ superStream: `${prefix}-super` })
  found.partitions = partitions.sort().join(" ")
  found.route = (await client.routeQuery({ routingKey: "1", superStream: `${prefix}-super` })).join(" ")
  found.super = await readSuper(client)
  found.first = summary(await read(client, "filtered", count, Offset.first()))
  found.offset = summary((await read(client, "filtered", 300, Offset.offset(123n))).slice(0, 300))
  const since = await read(client, "filtered", 300, Offset.timestamp(new Date(middle)))
  found.timestamp = summary(since.slice(0, 300))
  found.filtered = await readFiltered(client)
  found.packed = await readPacked(client)
  found.turns = await readByTurns(client)
  found.resumed = await resume(client)
  const stats = await client.streamStatsRequest(stream)
  found.stats = String(stats.firstChunkId)
  if (before) found.stored = String(await client.queryOffset({ stream, reference: `resumed-${before}` }))
  return found
}

async function main() {
  const client = await open()
  const done = command === "fill" ? await fill(client, argument !== "") : await walk(client, Number(argument))
  await client.close()
  console.log(JSON.stringify(done))
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
