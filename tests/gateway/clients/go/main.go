// RabbitMQ's stream client for Go reading a stream from its first message: what it writes is in ../README.md.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/amqp"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"
)

const line = 10_000

func main() {
	port, err := strconv.Atoi(os.Args[2])
	check(err)
	messages, err := strconv.ParseInt(os.Args[4], 10, 64)
	check(err)
	// Its own default, 8 KiB, is less than a packet on loopback: senders then wait for a timer before each.
	place := stream.NewEnvironmentOptions().SetHost(os.Args[1]).SetPort(port).SetReadBuffer(1 << 20)
	environment, err := stream.NewEnvironment(place)
	check(err)
	var number, count, first int64
	last := int64(-1)
	hash := sha256.New()
	done := make(chan struct{})
	take := func(context stream.ConsumerContext, message *amqp.Message) {
		offset := context.Consumer.GetOffset()
		if number == messages {
			return
		}
		if offset <= last {
			check(fmt.Errorf("offset %d after %d", offset, last))
		}
		if count == 0 {
			first = offset
		}
		last = offset
		count++
		number++
		hash.Write(encode(offset, message))
		if count == line || number == messages {
			fmt.Printf("%d %d %d %x\n", first, last, count, hash.Sum(nil))
			hash.Reset()
			count = 0
		}
		if number == messages {
			close(done)
		}
	}
	options := stream.NewConsumerOptions().SetOffset(stream.OffsetSpecification{}.First()).SetCRCCheck(true)
	consumer, err := environment.NewConsumer(os.Args[3], take, options)
	check(err)
	closed := consumer.NotifyClose()
	select {
	case <-done:
	case event := <-closed:
		check(fmt.Errorf("the consumer has ended: %s", event.Reason))
	}
	check(consumer.Close())
	check(environment.Close())
}

func encode(offset int64, message *amqp.Message) []byte {
	var encoded bytes.Buffer
	check(binary.Write(&encoded, binary.BigEndian, offset))
	fields := [3][]byte{bytes.Join(message.Data, nil), nil, nil}
	if message.Properties != nil && message.Properties.MessageID != nil {
		fields[1] = []byte(message.Properties.MessageID.(string))
	}
	if shop, isThere := message.Annotations["x-shop"]; isThere {
		fields[2] = []byte(shop.(string))
	}
	for _, field := range fields {
		check(binary.Write(&encoded, binary.BigEndian, uint32(len(field))))
		encoded.Write(field)
	}
	return encoded.Bytes()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
