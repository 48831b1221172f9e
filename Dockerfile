# The image of the service: one static binary on distroless, with an unprivileged user. `make image` builds it and sets the
# version, the commit and its date.
#
# The file does not need BuildKit, so docker, podman and kaniko can build it. Both base images can come from your own registry:
# --build-arg GO_IMAGE=... --build-arg BASE_IMAGE=... The digest selects the image; the tag is a comment for readers. After you
# change a tag, run `scripts/pins images`, which writes the digest.
ARG GO_IMAGE=golang:1.26.8@sha256:3c3e25a4da13fd0478eed2df1eb35a0e667094a7124d3993a6a1d30f71c17e79
ARG BASE_IMAGE=gcr.io/distroless/static-debian12:nonroot@sha256:afa5c872c891853ca7fcf1f12c3edb23f7eeef36189728842dd51042ff57f7ab

FROM ${GO_IMAGE} AS build
WORKDIR /src
# Modules change less often than sources, so they have their own layer.
ARG GOPROXY
COPY go.mod go.sum ./
RUN go mod download
COPY cmd/extauthz cmd/extauthz
COPY pkg pkg
COPY internal internal
# .dockerignore excludes .git, so Go cannot find the version. The arguments set it.
ARG VERSION="(devel)"
ARG REVISION
ARG CREATED
RUN BUILD=github.com/extauthz/extauthz/internal/command && CGO_ENABLED=0 go build -trimpath -tags=grpcnotrace -o /out/usr/local/bin/extauthz \
      -ldflags="-s -w -X '${BUILD}.linkedVersion=${VERSION}' -X '${BUILD}.linkedCommit=${REVISION}' -X '${BUILD}.linkedDate=${CREATED}'" \
      ./cmd/extauthz && \
    mkdir /out/bin && for name in ratelimit ratelimit_config_check ratelimit_client; do \
      ln -s /usr/local/bin/extauthz /out/bin/$name; done && go clean -cache

FROM ${BASE_IMAGE}
COPY --from=build /out/usr/local/bin/ /usr/local/bin/
# The binaries of envoyproxy/ratelimit. Its image has /bin/ratelimit, which Envoy Gateway starts.
COPY --from=build /out/bin/ /bin/
ARG VERSION="(devel)"
ARG REVISION
ARG CREATED
LABEL org.opencontainers.image.title="extauthz" \
      org.opencontainers.image.description="Rate limits and authorization for Envoy, decided exactly" \
      org.opencontainers.image.source="https://github.com/extauthz/extauthz" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
# The user nonroot of distroless, as a number, because Kubernetes' runAsNonRoot does not accept a name.
USER 65532:65532
# HTTP, gRPC, debug. There is no HEALTHCHECK, because the same image also runs `echo`. Use `extauthz health` as a health check.
EXPOSE 8080 8081 6070
ENTRYPOINT ["/usr/local/bin/extauthz"]
