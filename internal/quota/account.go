package quota

import (
	"context"
	"sync"
)

// Account counts the bytes that one request holds of its client's share: its header, and the memory of the
// answer while the client reads it. It is safe for concurrent use. A nil *Account has no limit.
type Account struct {
	of     *Shares
	client any

	mu   sync.Mutex
	held int64
}

// Open returns an account of a client. Close has to follow.
func (s *Shares) Open(client any) *Account { return &Account{of: s, client: client} }

// Hold adds bytes, and reports whether the client may hold them.
func (a *Account) Hold(bytes int) bool {
	if a == nil {
		return true
	}
	if !a.of.Take(a.client, int64(bytes)) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held += int64(bytes)
	return true
}

// Free takes back a part of the bytes that Hold has added.
func (a *Account) Free(bytes int) {
	if a == nil {
		return
	}
	a.mu.Lock()
	a.held -= int64(bytes)
	a.mu.Unlock()
	a.of.Give(a.client, int64(bytes))
}

// Close frees all bytes of the request.
func (a *Account) Close() {
	a.mu.Lock()
	held := a.held
	a.held = 0
	a.mu.Unlock()
	a.of.Give(a.client, held)
}

type accountKey struct{}

// WithAccount returns a context with the account of a request.
func WithAccount(ctx context.Context, a *Account) context.Context {
	return context.WithValue(ctx, accountKey{}, a)
}

// AccountOf returns the account of a request, nil if it has none.
func AccountOf(ctx context.Context) *Account {
	a, _ := ctx.Value(accountKey{}).(*Account)
	return a
}
