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

type accessKey struct{}

// WithAccess returns a context of a call whose caller may lose access while the call is
// open: access then ends, with the reason as its cause. The context of the call continues,
// so that the caller can be sent the reason.
func WithAccess(ctx, access context.Context) context.Context {
	return context.WithValue(ctx, accessKey{}, access)
}

// Access returns the context that ends when the caller of a call loses access, or when the
// call ends; nil for a caller that cannot lose it.
func Access(ctx context.Context) context.Context {
	access, _ := ctx.Value(accessKey{}).(context.Context)
	return access
}

// RightIn returns what the principal of a call may do by a method.
func RightIn(ctx context.Context, fullMethod string) Right {
	right, _ := Authorize(FromContext(ctx), fullMethod)
	return right
}
