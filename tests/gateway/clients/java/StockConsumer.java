// RabbitMQ's stream client for Java reading a stream from its first message: what it writes is in ../README.md.

import com.rabbitmq.stream.Consumer;
import com.rabbitmq.stream.Environment;
import com.rabbitmq.stream.OffsetSpecification;
import com.rabbitmq.stream.codec.SimpleCodec;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.concurrent.CompletableFuture;

public final class StockConsumer {
    private static final int LINE = 10_000;

    private final MessageDigest hash;
    private final long messages;
    private final CompletableFuture<Void> done = new CompletableFuture<>();
    private long number;
    private long first;
    private long last = -1;
    private int count;

    private StockConsumer(long messages) throws Exception {
        this.hash = MessageDigest.getInstance("SHA-256");
        this.messages = messages;
    }

    private void take(long offset, byte[] message) {
        if (number == messages) {
            return;
        }
        if (offset <= last) {
            done.completeExceptionally(new IllegalStateException("offset " + offset + " after " + last));
            return;
        }
        if (count == 0) {
            first = offset;
        }
        last = offset;
        count++;
        number++;
        hash.update(ByteBuffer.allocate(12).putLong(offset).putInt(message.length).flip());
        hash.update(message);
        if (count == LINE || number == messages) {
            System.out.println(first + " " + last + " " + count + " " + HexFormat.of().formatHex(hash.digest()));
            count = 0;
        }
        if (number == messages) {
            done.complete(null);
        }
    }

    public static void main(String[] arguments) throws Exception {
        StockConsumer taker = new StockConsumer(Long.parseLong(arguments[3]));
        try (Environment environment = Environment.builder()
                .host(arguments[0])
                .port(Integer.parseInt(arguments[1]))
                .codec(new SimpleCodec())  // hands out each message's bytes
                .build()) {
            Consumer consumer = environment.consumerBuilder()
                .stream(arguments[2])
                .offset(OffsetSpecification.first())
                .messageHandler((context, message) -> taker.take(context.offset(), message.getBodyAsBinary()))
                .build();
            taker.done.get();
            consumer.close();
        }
        System.exit(0);
    }
}
