package access

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/snapcache/snapcache/internal/clocks/clockstest"
)

const year = 365 * 24 * time.Hour

// TestTokens_WrongClock: while the clock is wrong a token is accepted if the server says so, and once it is right
// without the server too. A server that did not answer while the clock was wrong is asked again within seconds.
func TestTokens_WrongClock(t *testing.T) {
	for name, off := range map[string]time.Duration{
		"two hours behind": -2 * time.Hour, "26 years behind": -26 * year, "two hours ahead": 2 * time.Hour, "14 years ahead": 14 * year,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster, w, clk := newAuthority(t), newWorld(), &clockstest.Moved{}
				w.opts.Clock, w.began = clk, clk.Now()
				w.SetKeys(cluster.keys("k1"))
				token := cluster.token("k1", claimsOf(func(c map[string]any) {
					c["iat"], c["nbf"], c["exp"] = time.Now().Unix(), time.Now().Unix(), time.Now().Add(time.Hour).Unix()
				}))
				accepted := func() bool {
					_, err := w.Caller(request(token))
					return err == nil
				}
				answers, away := func(string) (authenticationv1.TokenReviewStatus, error) {
					return authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "till"}}, nil
				}, w.review
				require.True(t, accepted())
				clk.Off = off
				require.False(t, accepted(), "it is not valid by this clock")
				w.connected = true
				require.False(t, accepted(), "the server does not answer")
				asked := w.reviewed
				for _, set := range []time.Duration{off, off + year, off - year, 0} {
					clk.Off, w.review = set, answers
					time.Sleep(failedAge)
					require.True(t, accepted(), "the server accepts it")
					asked++
					require.Equal(t, asked, w.reviewed)
					time.Sleep(answerAge)
					w.review = away
					_ = accepted()
					asked++
				}
				w.connected = false
				require.True(t, accepted(), "right again")
			})
		})
	}
}

// TestAudiences_WrongClock: no audience is forgotten early because of a wrong clock, or remembered until its date.
func TestAudiences_WrongClock(t *testing.T) {
	now := time.Now()
	for name, tc := range map[string]struct {
		at   time.Duration // when it was named, since now
		ran  time.Duration // this process
		kept bool
	}{
		"right":                                 {-time.Hour, time.Minute, true},
		"right, for long":                       {-time.Hour, 2 * audienceAge, true},
		"not named for long":                    {-audienceAge, audienceAge, false},
		"named by a process before this one":    {-audienceAge, time.Minute, true},
		"the clock is 14 years ahead":           {-14 * year, time.Minute, true},
		"the clock is, or was, 26 years behind": {26 * year, 2 * audienceAge, true},
	} {
		t.Run(name, func(t *testing.T) {
			k := (&Keys{Audiences: map[string]time.Time{"api": now.Add(tc.at)}}).learned([]string{"other"}, now, tc.ran)
			require.Contains(t, k.Audiences, "other")
			require.Equal(t, tc.kept, !k.Audiences["api"].IsZero())
			require.False(t, k.Audiences["api"].After(now), "it would not be forgotten before its date")
			later := k.learned([]string{"other"}, now.Add(audienceAge), 2*audienceAge)
			require.NotContains(t, later.Audiences, "api")
		})
	}
}
