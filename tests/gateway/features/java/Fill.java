// RabbitMQ's stream client for Java doing what walks.py asks for: README.md has what it prints.

import com.rabbitmq.stream.ByteCapacity;
import com.rabbitmq.stream.Environment;
import com.rabbitmq.stream.Message;
import com.rabbitmq.stream.Producer;
import com.rabbitmq.stream.ProducerBuilder;
import com.rabbitmq.stream.compression.Compression;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;

// Makes the streams, and publishes to them.
final class Fill {
    private static final String[] KEYS = {"anna", "böri", "chloé", "東京", "e", "f", "g", "h", "ï", "j", "k", "ł"};
    private static final int BATCH = 50;

    private final String prefix;
    private final int count;
    private final Environment environment;

    Fill(Place place, Environment environment) {
        prefix = place.prefix;
        count = place.count;
        this.environment = environment;
    }

    String fill(boolean isThere) throws Exception {
        ByteCapacity segment = ByteCapacity.B(100_000);
        String superStream = prefix + "-super";
        if (!isThere) {
            environment.streamCreator().name(superStream).maxSegmentSizeBytes(segment)
                .superStream().partitions(3).creator().create();
        }
        environment.streamCreator().name(prefix + "-filtered").maxSegmentSizeBytes(segment).create();
        environment.streamCreator().name(prefix + "-packed").maxSegmentSizeBytes(segment).create();
        for (int time = 0; time < 2; time++) {  // so that half of them are duplicates
            CountDownLatch confirmed = new CountDownLatch(count);
            ProducerBuilder till = environment.producerBuilder().superStream(superStream).name("till")
                .routing(message -> Place.textOf(message).split(" ")[0]).producerBuilder();
            try (Producer producer = till.build()) {
                for (int number = 1; number <= count; number++) {
                    Message message = message(producer, KEYS[number % KEYS.length], number);
                    producer.send(message, status -> confirmed.countDown());
                }
                confirmed.await();
            }
        }
        String filtered = prefix + "-filtered";
        publish(filtering(filtered), 0, count / 2, "north", "south");
        Thread.sleep(50);
        long middle = System.currentTimeMillis();
        Thread.sleep(50);
        publish(filtering(filtered), count / 2, count, "north", "south");
        Compression[] kinds = {Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD};
        for (int kind = 0; kind < kinds.length; kind++) {
            ProducerBuilder packed = environment.producerBuilder().stream(prefix + "-packed");
            packed.subEntrySize(BATCH).compression(kinds[kind]);
            publish(packed, count / kinds.length * kind, count / kinds.length * (kind + 1), "packed");
        }
        return "{\"middle\": " + middle + "}";
    }

    private ProducerBuilder filtering(String stream) {
        return environment.producerBuilder().stream(stream).filterValue(Place::regionOf);
    }

    private static Message message(Producer producer, String kind, int number) {
        return producer.messageBuilder()
            .publishingId(number)
            .applicationProperties().entry("region", kind).messageBuilder()
            .addData(Place.text(kind, number).getBytes(StandardCharsets.UTF_8))
            .build();
    }

    private void publish(ProducerBuilder builder, int first, int last, String... kinds) throws Exception {
        Semaphore confirmed = new Semaphore(0);
        try (Producer producer = builder.build()) {
            for (int number = first; number < last; number++) {
                String kind = kinds[number / BATCH % kinds.length];
                producer.send(message(producer, kind, number), status -> {
                    if (status.isConfirmed()) {
                        confirmed.release();
                    }
                });
                if ((number - first + 1) % BATCH == 0) {
                    confirmed.acquire(BATCH);
                }
            }
        }
    }
}
