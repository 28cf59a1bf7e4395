package localapi

import (
	"fmt"
	"time"
)

// Age formats seconds for people: "12s", "5m3s", "3h12m", "2d4h".
func Age(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}

// Roughly formats an age like Age, but without seconds if it is a minute or more, so that the text
// does not change every second.
func Roughly(seconds float64) string {
	if seconds >= time.Minute.Seconds() && seconds < time.Hour.Seconds() {
		return fmt.Sprintf("%dm", int(seconds)/60)
	}
	return Age(seconds)
}
