package redisstore

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// Log sends what the Redis client library logs to log, at debug, for the whole process. By itself, the library writes
// several lines to stderr for each attempt to connect. Config.Up reports what an operator has to know.
func Log(log *slog.Logger) { redis.SetLogger(clientLog{log}) }

// clientLog is the log of the client library.
type clientLog struct{ to *slog.Logger }

// Printf implements the interface of the library.
func (l clientLog) Printf(ctx context.Context, format string, v ...any) {
	if l.to.Enabled(ctx, slog.LevelDebug) {
		l.to.DebugContext(ctx, "Redis client", "text", fmt.Sprintf(format, v...))
	}
}
