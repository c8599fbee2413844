package auth

import "context"

type principalKey struct{}

// NewContext returns a context of a call by a principal; nil stands for a caller without
// credentials.
func NewContext(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// FromContext returns the principal of the call that ctx belongs to; nil without one.
func FromContext(ctx context.Context) *Principal {
	p, _ := ctx.Value(principalKey{}).(*Principal)
	return p
}

// RightIn returns what the principal of a call may do by a method.
func RightIn(ctx context.Context, fullMethod string) Right {
	right, _ := Authorize(FromContext(ctx), fullMethod)
	return right
}
