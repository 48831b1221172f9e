// A client of @grpc/grpc-js, with messages as bytes: node client.js ADDRESS. It prints one line for each check.
const grpc = require("@grpc/grpc-js");

const bytes = (m) => m;
const field = (number, content) => Buffer.concat([Buffer.from([(number << 3) | 2, content.length]), content]);
const entry = Buffer.concat([field(1, Buffer.from("user")), field(2, Buffer.from("js"))]);
const request = Buffer.concat([field(1, Buffer.from("shop")), field(2, field(1, entry))]);
const limit = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const client = new grpc.Client(process.argv[2], grpc.credentials.createInsecure());
const compressing = new grpc.Client(process.argv[2], grpc.credentials.createInsecure(), {
  "grpc.default_compression_algorithm": grpc.compressionAlgorithms.gzip,
});

const call = (method, message, by = client) =>
  new Promise((resolve) => {
    const options = { deadline: Date.now() + 20000 };
    by.makeUnaryRequest(method, bytes, bytes, message, new grpc.Metadata(), options, (error, answer) =>
      resolve(error ? `${error.code} ${error.details}` : answer.toString("hex").slice(0, 4)));
  });

(async () => {
  const answers = [];
  for (let round = 0; round < 10; round++) {
    answers.push(...(await Promise.all(Array.from({ length: 100 }, () => call(limit, request)))));
    await new Promise((resolve) => setTimeout(resolve, 50)); // connections end for their age meanwhile
  }
  const others = answers.filter((answer) => answer !== "0801");
  console.log("allowed:", answers.length - others.length, ...new Set(others));
  const unknownField = Buffer.concat([Buffer.from([0x7a, 0xf0, 0xa2, 0x04]), Buffer.alloc(70000)]);
  console.log("70 kB:", await call(limit, Buffer.concat([unknownField, request])));
  const padding = Buffer.concat([Buffer.from([0x7a, 0xe8, 0x07]), Buffer.alloc(1000)]);
  console.log("compressed:", await call(limit, Buffer.concat([padding, request]), compressing));
  console.log("malformed:", await call(limit, Buffer.from([0xff])));
  console.log("unknown:", (await call("/shop.Shop/Buy", request)).split(" ")[0]);
  console.log("health:", await call("/grpc.health.v1.Health/Check", Buffer.alloc(0)));
  const watch = client.makeServerStreamRequest("/grpc.health.v1.Health/Watch", bytes, bytes, Buffer.alloc(0));
  watch.on("data", (state) => {
    console.log("watch:", state.toString("hex"));
    watch.cancel();
  });
  watch.on("error", () => {
    client.close();
    compressing.close();
  });
})();
